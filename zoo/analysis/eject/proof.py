"""Proof that an ejected file computes what its model does: outputs, gradients of a training step, greedy tokens."""

from __future__ import annotations

import copy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from zoo.base.errors import UnsupportedOperationError
from zoo.models import ZooPreTrainedModel
from zoo.models.checkpoint_files import without_progress_bars
from zoo.registry.variants import active_quirks

from . import running

TOLERANCES = {torch.float32: 1e-6, torch.float64: 1e-12}
"""How far outputs may be apart, in parts of the largest one, or of 1 if all are smaller."""

GRADIENTS = 1e-5  # The same of gradients and the loss, which transformers computes in float32
LENGTHS = (12, 9)  # Tokens of the two sequences, before padding

NAMES = {
    "input_ids": "ids",
    "inputs_embeds": "ids",
    "decoder_input_ids": "decoder_ids",
    "decoder_inputs_embeds": "decoder_ids",
}
"""Inputs of the file by those of the model."""


def prove(file: Path, model: ZooPreTrainedModel, task: str, *, is_new: bool) -> dict[str, float]:
    """Compare an ejected file, run in a process without the zoo, with its model: the largest differences, by dtype.

    Norms and biases of new weights are drawn. Raises UnsupportedOperationError, with what differs, if anything does.
    """
    model = without_dropout(model)
    if is_new:
        randomise(model)
    inputs, labels, padded = inputs_of(model, task)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with without_progress_bars():
            model.save_pretrained(folder)
        (folder / "inputs").mkdir()
        writes = task in ("causal-lm", "seq2seq-lm") and all(quirk.generates for quirk in active_quirks(model.config))
        given = {NAMES.get(name, name): tensor for name, tensor in inputs.items()}
        if not padded:
            del given["attention_mask"]
        save_file(given | ({} if labels is None else {"labels": labels}), folder / "inputs" / "inputs.safetensors")
        command = [sys.executable, "-I", running.__file__, str(file), str(folder), *(["writes"] if writes else [])]
        run = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
        if run.returncode:
            last = (run.stderr.strip().splitlines() or [f"its process ended with {run.returncode}"])[-1]
            raise UnsupportedOperationError(f"{file} does not run: {last}")
        found = load_file(folder / "inputs" / "found.safetensors")
    return compared(found, expected(model, inputs, labels, writes), inputs["attention_mask"])


def without_dropout(model: ZooPreTrainedModel) -> ZooPreTrainedModel:
    config = copy.deepcopy(model.config)
    for name in ("dropout", "attention_dropout", "activation_dropout", "classifier_dropout"):
        setattr(config, name, 0.0)
    other = type(model)(config)
    other.load_state_dict(model.state_dict())
    return other.eval()


@torch.no_grad()
def randomise(model: ZooPreTrainedModel) -> None:
    """Move every parameter, so that none is zero or one; wide matrices less, so that scores stay moderate."""
    generator = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        deviation = 0.05 * min(1.0, (64 / weight.shape[-1]) ** 0.5) if weight.dim() > 1 else 0.05
        weight += torch.randn(weight.shape, generator=generator) * deviation


def inputs_of(model: ZooPreTrainedModel, task: str) -> tuple[dict[str, Tensor], Tensor | None, bool]:
    """Inputs and labels, and whether the shorter sequence is padded."""
    config, generator = model.config, torch.Generator().manual_seed(1)

    def drawn(limit: int, *shape: int) -> Tensor:
        return torch.randint(min(3, limit - 1), limit, shape, generator=generator)

    ids, mask = drawn(config.vocab_size, 2, LENGTHS[0]), torch.ones(2, LENGTHS[0], dtype=torch.long)
    padded = task != "causal-lm"
    if padded:
        mask[1, LENGTHS[1] :] = 0
        ids[1, LENGTHS[1] :] = config.pad_token_id or 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    length = LENGTHS[0 if any(quirk.one_length for quirk in active_quirks(config)) else 1]
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = drawn(config.decoder_vocab_size, 2, length)
    if config.type_vocab_size is not None and config.stack == "encoder":
        inputs["token_type_ids"] = torch.randint(config.type_vocab_size, (2, LENGTHS[0]), generator=generator)
    labels: Tensor | None = drawn(config.vocab_size, 2, LENGTHS[0])
    if task == "causal-lm":
        labels = ids.clone()
    elif task == "seq2seq-lm":
        labels = drawn(config.decoder_vocab_size, 2, length)
    elif task == "sequence-classification":
        labels = classes(config)
    elif task == "token-classification":
        labels = torch.randint(config.num_labels, (2, LENGTHS[0]), generator=generator)
    elif task == "feature-extraction":
        labels = None
    if task in ("masked-lm", "token-classification") and labels is not None:
        labels = labels.masked_fill(mask == 0, -100)  # nothing need be computed for padding
    if config.has_quirk("works-on-features"):
        for name in ("input_ids", "decoder_input_ids"):
            shape = (*inputs.pop(name).shape, config.hidden_size)
            inputs[name.replace("_ids", "s_embeds")] = torch.randn(shape, generator=generator)
        labels = None if labels is None else labels % config.hidden_size
    return inputs, labels, padded


def classes(config: Any) -> Tensor:
    """Labels of two sequences."""
    if config.classifier_positions is not None:
        return torch.arange(2 * config.classifier_positions).view(2, -1) % config.num_labels
    if config.num_labels == 1 or config.problem_type == "regression":
        return torch.linspace(-1, 1, 2 * config.num_labels).view(2, -1)
    if config.problem_type == "multi_label_classification":
        return (torch.arange(2 * config.num_labels).view(2, -1) % 2).float()
    return torch.tensor([0, config.num_labels - 1])


def expected(
    model: ZooPreTrainedModel, inputs: dict[str, Tensor], labels: Tensor | None, writes: bool
) -> dict[str, Tensor]:
    """Outputs of the zoo's model, by the names that the other process uses."""
    found: dict[str, Tensor] = {}
    for dtype in TOLERANCES:
        model.to(dtype).eval()
        with torch.no_grad():
            given = running.copied(inputs, dtype)
            output = model(**given, use_cache=False) if writes else model(**given)
        found[f"outputs {dtype}"] = output["logits"] if "logits" in output else output["last_hidden_state"]
    if labels is not None:
        given = {name: tensor for name, tensor in inputs.items() if name != "decoder_input_ids"} | {"labels": labels}
        loss = model.train()(**running.copied(given, torch.float64))["loss"]
        loss.backward()
        found["loss"] = loss.detach()
        found |= running.gradients(model)
    if writes:
        never_ends: Any = {"eos_token_id": None, "max_new_tokens": running.TOKENS, "do_sample": False}
        model.generation_config.eos_token_id = None
        if "decoder_input_ids" in inputs:
            never_ends["attention_mask"] = inputs["attention_mask"]
        found["tokens"] = model.eval().generate(inputs["input_ids"], **never_ends)
    return found


def compared(found: dict[str, Tensor], wanted: dict[str, Tensor], mask: Tensor) -> dict[str, float]:
    """The largest differences of outputs, by dtype, where the mask has 1, for real tokens."""
    differences, rounding = {}, 0.0
    for name, value in wanted.items():
        other = found.get(name)
        if other is None or other.shape != value.shape:
            raise differs(name, None if other is None else tuple(other.shape), tuple(value.shape))
        if name == "tokens":
            if not torch.equal(other, value):
                raise differs("greedy tokens with the cache", other.tolist(), value.tolist())
            continue
        if name.startswith("outputs") and value.ndim == 3 and value.shape[1] == mask.shape[1]:
            other, value = other * mask[..., None], value * mask[..., None]
        scale = max(1.0, value.abs().max().item()) if name.startswith("outputs") else value.abs().max().item() + 1e-3
        difference = (other.double() - value.double()).abs().max().item() / scale
        if name == f"outputs {torch.float32}":
            # Rounding may grow in the layers: then the file is to be as near to float64 as the model is.
            rounding = (value.double() - wanted[f"outputs {torch.float64}"]).abs().max().item() / scale
        dtype = next((one for one in TOLERANCES if name == f"outputs {one}"), None)
        tolerance = GRADIENTS if dtype is None else TOLERANCES[dtype]
        if not difference <= (max(tolerance, 3 * rounding) if dtype is torch.float32 else tolerance):
            raise differs(name, other.flatten()[:3].tolist(), value.flatten()[:3].tolist())
        if dtype is not None:
            differences[str(dtype).removeprefix("torch.")] = difference
    return differences


def differs(name: str, found: Any, wanted: Any) -> UnsupportedOperationError:
    return UnsupportedOperationError(
        f"nothing was written: {name} of the file would be {found}, where the model has {wanted}; its plain form is "
        "wrong"
    )
