"""The models that are checked: tiny, in float64, with weights that let no part hide."""

import copy
import dataclasses
from functools import cache
from typing import Any

import torch
from torch import Tensor

from zoo.building.builder import build, config
from zoo.models import ZooConfig, ZooPreTrainedModel
from zoo.models.fields import usual_range
from zoo.registry import parse_name

SOURCE_VOCABULARY = 37
TARGET_VOCABULARY = 41
FIRST_ORDINARY_ID = 3  # Padding, begin and end come before it
SOURCE_LENGTH = 6
TARGET_LENGTH = 7
BATCH_SIZE = 3
NUM_LABELS = 5
WINDOW = 4  # Shorter than the sequences, so that a sliding window slides


@dataclasses.dataclass(frozen=True)
class Subject:
    """A tiny model of one variant for one task, and what it takes to run it.

    Checks share a subject: one that changes the model works on a `copy`.

    Args:
        name: The variant's name, possibly with settings.
        task: Task of the model.
        model: The model, in float64 and evaluation mode.
    """

    name: str
    task: str
    model: ZooPreTrainedModel

    @property
    def config(self) -> ZooConfig:
        """The model's configuration."""
        return self.model.config

    @property
    def stack(self) -> str:
        """The model's stacks: "encoder", "decoder" or "encoder-decoder"."""
        return self.config.stack

    @property
    def body(self) -> Any:
        """The model without its head."""
        return getattr(self.model, "model", self.model)

    def copy(self) -> ZooPreTrainedModel:
        """A copy of the model that may be changed."""
        return copied(self.model)

    def rebuilt(self, **overrides: Any) -> ZooPreTrainedModel:
        """A new model in evaluation mode with the same weights and other settings, as for [`zoo.build`][]."""
        model = build(self.name, self.task, **{"dtype": self.model.dtype, **overrides})
        model.load_state_dict(self.model.state_dict())
        return model

    def inputs(self, batch_size: int = BATCH_SIZE, seed: int = 0) -> dict[str, Tensor]:
        """Random `input_ids` without padding, and `decoder_input_ids` for an encoder-decoder."""
        if self.stack != "encoder-decoder":
            return {"input_ids": token_ids(batch_size, TARGET_LENGTH, self.config.vocab_size, seed)}
        return {
            "input_ids": token_ids(batch_size, SOURCE_LENGTH, self.config.vocab_size, seed),
            "decoder_input_ids": token_ids(batch_size, TARGET_LENGTH, self.target_vocabulary, seed + 1),
        }

    @property
    def target_vocabulary(self) -> int:
        """Number of token ids that the last stack reads."""
        if self.stack != "encoder-decoder" or self.config.share_encoder_decoder_embeddings:
            return self.config.vocab_size
        return self.config.decoder_vocab_size or self.config.vocab_size

    def labels(self, batch_size: int = BATCH_SIZE, seed: int = 0) -> Tensor | None:
        """Labels that fit `inputs`, some of them without a loss; None for feature extraction."""
        generator = torch.Generator().manual_seed(seed + 2)
        if self.task == "feature-extraction":
            return None
        if self.task == "sequence-classification":
            return on_device(torch.randint(NUM_LABELS, (batch_size,), generator=generator, device="cpu"))
        if self.task == "token-classification":
            shape = (batch_size, TARGET_LENGTH)
            labels = on_device(torch.randint(NUM_LABELS, shape, generator=generator, device="cpu"))
        else:
            labels = token_ids(batch_size, TARGET_LENGTH, self.target_vocabulary, seed + 2)
        labels[0, -2:] = -100
        return labels

    def run(self, model: ZooPreTrainedModel | None = None, /, **inputs: Any) -> Tensor:
        """The logits, or last hidden state, without gradients; by default of the subject's model and `inputs()`."""
        with torch.no_grad():
            return main_output((model or self.model)(**(inputs or self.inputs())))

    def loss(self, model: ZooPreTrainedModel) -> Tensor:
        """A scalar with gradients for every parameter in use.

        The model's own loss, or for feature extraction a random projection of the last hidden state.
        """
        labels = self.labels()
        if labels is not None:
            return model(**self.inputs(), labels=labels).loss
        hidden_states = main_output(model(**self.inputs()))
        generator = torch.Generator().manual_seed(5)
        weights = torch.randn(hidden_states.shape, generator=generator, device="cpu")
        return (hidden_states * weights.to(hidden_states)).mean()


def copied(model: ZooPreTrainedModel) -> ZooPreTrainedModel:
    """A copy of a model, without deep copies of the dozen empty dicts of hooks of every module, which take long."""
    attributes = (value for module in model.modules() for value in vars(module).values())
    empty = {id(hooks): type(hooks)() for hooks in attributes if isinstance(hooks, dict) and not hooks}
    return copy.deepcopy(model, empty)


def gradients_of(model: ZooPreTrainedModel) -> dict[str, Tensor]:
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def main_output(outputs: Any) -> Tensor:
    return outputs.logits if "logits" in outputs else outputs.last_hidden_state


def token_ids(batch_size: int, length: int, vocabulary: int, seed: int) -> Tensor:
    """Random ids of ordinary tokens. *Shape:* (batch_size, length)."""
    generator = torch.Generator().manual_seed(seed)
    return on_device(
        torch.randint(FIRST_ORDINARY_ID, vocabulary, (batch_size, length), generator=generator, device="cpu")
    )


def on_device(tensor: Tensor) -> Tensor:
    """Move a tensor to PyTorch's default device, where all checks run (`torch.set_default_device("cuda")`)."""
    return tensor.to(torch.get_default_device())


@torch.no_grad()
def randomize(model: ZooPreTrainedModel, seed: int = 0, std: float = 0.15) -> ZooPreTrainedModel:
    """Add noise of this standard deviation to every parameter, in place.

    A bias that starts at zero, a norm that starts at one, a ReZero weight: in a new model it makes no difference
    whether they are read, saved or loaded.
    """
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64, device="cpu")
        parameter.add_(std * noise.to(parameter))
    return model


def tiny_name(name: str, task: str) -> str:
    """Write a variant's name with the settings of a test model."""
    spec = parse_name(name)
    spec = dataclasses.replace(spec, preset=spec.preset or "tiny")
    sizes: dict[str, Any] = {"vocab_size": SOURCE_VOCABULARY, "max_position_embeddings": 64, "num_labels": NUM_LABELS}
    usual = config(str(spec), task)
    if usual.initializer_range == usual_range(usual.hidden_size, usual.initializer_width):
        # Small weights, so that outputs are of the size for which the tolerances of checks are meant.
        sizes["initializer_width"] = 1
    if usual.stack == "encoder-decoder":
        # Encoder and decoder differ in depth and vocabulary, so that confusing them is an error.
        sizes["decoder_layers"] = usual.num_hidden_layers + 1
        if not usual.share_encoder_decoder_embeddings:
            sizes["decoder_vocab_size"] = TARGET_VOCABULARY
    if usual.sliding_window is not None:
        sizes["sliding_window"] = WINDOW
    return str(dataclasses.replace(spec, overrides={**sizes, **spec.overrides}))


def new_subject(name: str, task: str) -> Subject:
    """Build the model of a variant and task that checks run on, with randomised weights."""
    full_name = tiny_name(name, task)
    return Subject(full_name, task, randomize(build(full_name, task, seed=0, dtype=torch.float64)))


subject_of = cache(new_subject)
"""As [`new_subject`][], built once in a process."""
