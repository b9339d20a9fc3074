"""Models that run in another engine than torch, with the interface of a model of transformers."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation import GenerateBeamDecoderOnlyOutput, GenerateBeamEncoderDecoderOutput, GenerationMixin
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput, Seq2SeqLMOutput
from transformers.utils import GENERATION_CONFIG_NAME
from transformers.utils.generic import can_return_tuple

from zoo.base.errors import ConfigError, InputError, UnsupportedOperationError
from zoo.fast.chunked_loss import IGNORED
from zoo.models import TASK_CLASSES, Position, ZooConfig
from zoo.models.context import packed_documents
from zoo.models.transformer import transformer_of
from zoo.registry import Task

Written = tuple[list[int], float]
"""New ids, an end included, and the mean of their log-probabilities where [`is_scored`][], else 0."""

DEFAULTS: dict[str, Any] = GenerationConfig._get_default_generation_params()
"""transformers' settings of generation where none are set."""

FOLLOWED = {  # Settings of generation that every engine follows, or that change nothing without another model
    *("do_sample", "max_length", "max_new_tokens", "num_return_sequences", "temperature", "top_k", "top_p"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "early_stopping", "use_cache"),
    *("return_dict_in_generate", "output_scores", "output_logits", "transformers_version"),
    *(name for name in DEFAULTS if "assistant" in name or "lookbehind" in name),
}


def without_tensors(config: ZooConfig) -> Position:
    """The position part of a stack without its tensors, which are in the export: it counts and checks positions."""
    with torch.device("meta"):
        part = transformer_of(config).build_position(copy.deepcopy(config))
    for module in part.modules():
        module._parameters.clear()
        module._buffers.clear()
    return part


def is_scored(settings: GenerationConfig) -> bool:
    return bool(settings.output_scores or settings.output_logits)


def unfollowed(settings: GenerationConfig, followed: Collection[str] = ()) -> list[str]:
    """Names of settings that change the output, and are neither common to all engines nor otherwise `followed`."""
    # Zero is off, but for ids of tokens.
    given = {
        name
        for name, value in settings.to_diff_dict().items()
        if (value or (value == 0 and value is not False and name.endswith("_id"))) and value != DEFAULTS.get(name)
    }
    return sorted(name for name in given - FOLLOWED - {*followed} if not name.startswith("_"))


def refuse_foreign(engine: str, foreign: Collection[str]) -> None:
    if foreign:
        raise ConfigError(f"{engine} does not follow {', '.join(foreign)}; leave it out, or use another engine")


def task_saved(config: ZooConfig) -> str:
    """The task of the head that a configuration was saved with; feature-extraction for bodies."""
    saved = (config.architectures or [None])[0]
    heads = (task for task, (_, model_class) in TASK_CLASSES.items() if model_class.__name__ == saved)
    return str(next(heads, Task.FEATURE_EXTRACTION.value))


def refuse_empty(input_ids: Tensor) -> None:
    """Refuse rows without a token, which have no next token to predict."""
    if input_ids.shape[1] == 0:
        raise InputError("an empty text was given; each needs at least one token")


def refuse_added(attention_mask: Tensor) -> None:
    """Refuse masks that are added to scores, of which engines would read every 0 as padding."""
    if attention_mask.is_floating_point() and (attention_mask < 0).any():
        raise InputError(
            "an attention_mask with values below 0 was given, as masks have that are added to scores; valid: 1 for "
            "real tokens and 0 for padding, here (attention_mask == 0).long()"
        )


def positions_of_rows(position_ids: Tensor | None, input_ids: Tensor) -> Tensor | None:
    """Positions of every row, (batch_size, seq_len), of given ones, (batch_size or 1, seq_len)."""
    if position_ids is None or position_ids.shape in (input_ids.shape, input_ids[:1].shape):
        return None if position_ids is None else position_ids.expand_as(input_ids)
    given, valid = tuple(position_ids.shape), tuple(input_ids.shape)
    raise InputError(f"position_ids of shape {given} were given; valid: {valid} or {(1, *valid[1:])}")


def refuse_packed(position_ids: Tensor | None, attention_mask: Tensor | None) -> None:
    """Refuse documents packed into rows, (batch_size, seq_len), which no export separates."""
    if attention_mask is None and packed_documents(position_ids) is not None:
        raise UnsupportedOperationError(
            "position_ids pack several documents into a row, which exports do not separate; ask the original model, or "
            "evaluate with packing=blocks"
        )


UNREAD = (  # Arguments that change outputs, and that exports do not read unless a model names them
    *("output_attentions", "output_hidden_states", "inputs_embeds", "decoder_inputs_embeds", "causal_rows"),
    *("position_ids", "decoder_position_ids", "decoder_input_ids", "decoder_attention_mask"),
    *("past_key_values", "cache", "encoder_outputs", "logits_to_keep", "loss_smoothing", "z_loss"),
)


def refuse_unread(given: Mapping[str, Any]) -> None:
    """Refuse arguments that an export would ignore."""
    asked = [name for name in UNREAD if isinstance(value := given.get(name), Tensor) or value]
    if asked:
        raise UnsupportedOperationError(f"exports have no {', '.join(asked)}; ask the original model")


class EngineModel(PreTrainedModel):
    """An export as a model of transformers, for one `task`. It has no parameters: the engine holds the weights."""

    config: ZooConfig
    main_input_name = "input_ids"
    can_assist = False  # drafts that are wrong cannot be taken out of its cache
    _supports_sdpa = True

    def __init__(self, config: ZooConfig, folder: Path) -> None:
        super().__init__(config)
        self.task = task_saved(config)
        stacks = [config.decoder_config()] if config.is_encoder_decoder else []
        # How long inputs may be is asked of a model's position parts.
        self.positions = torch.nn.ModuleList([without_tensors(stack) for stack in (config, *stacks)])
        if (folder / GENERATION_CONFIG_NAME).is_file() and self.can_generate():
            self.generation_config = GenerationConfig.from_pretrained(folder)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    def position(self, stack: int = 0) -> Position:
        """The position part of the first stack, or of the decoder of an encoder-decoder, 1."""
        return cast(Position, self.positions[stack])

    def refuse_positions(self, position_ids: Tensor | None, mask: Tensor) -> None:
        """Refuse positions that are not counted as the export counts them by itself. *Shape:* (batch_size, seq_len)."""
        if position_ids is not None:
            counted = self.position().count(mask, mask)
            if not torch.equal(*(one.expand_as(mask)[mask.bool()] for one in (position_ids, counted))):
                raise UnsupportedOperationError("exports count position_ids by themselves; leave them out")


class ScoredText(NamedTuple):
    """A text to score."""

    prompt: list[int]  # Ids before it, or what an encoder-decoder reads
    ids: list[int]  # The text
    labels: list[int]  # The same, -100 for ids that do not count


FOLLOWING = "labels of a model that an engine runs have to be the tokens that follow"


def continued(ids: list[int], following: list[int]) -> ScoredText:
    """Make a text of the tokens that a decoder is given, its first token the prompt."""
    text = [*ids[1:], *(label for label in following[-1:] if label != IGNORED)]
    labels = following[: len(text)]
    if any(label not in (IGNORED, number) for label, number in zip(labels, text, strict=True)):
        raise UnsupportedOperationError(FOLLOWING)
    return ScoredText(ids[:1], text, labels)


def translated(ids: list[int], labels: list[int]) -> ScoredText:
    """Make a text of an encoder-decoder's labels, after which -100 may fill the row."""
    text = [label for label in labels if label != IGNORED]
    if text != labels[: len(text)]:
        raise UnsupportedOperationError(FOLLOWING)
    return ScoredText(ids, text, text)


class WritingModel(EngineModel, GenerationMixin):
    """An export in an engine that returns tokens, and log-probabilities of given ones, but no logits."""

    engine_name: ClassVar[str]  # The engine's own name

    @torch.no_grad()
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        shift_labels: Tensor | None = None,
        position_ids: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> CausalLMOutput | Seq2SeqLMOutput | BaseModelOutput:
        """Compute the loss of labels, or the hidden states of an encoder.

        Args:
            position_ids: Those of one document a row; engines count by themselves. *Shape:* (batch_size, seq_len)
            labels: Target of an encoder-decoder, or the tokens of a decoder themselves; -100 does not count. *Shape:*
                (batch_size, seq_len)
            shift_labels: Next tokens of a decoder, in place of `labels`. *Shape:* (batch_size, seq_len)
            num_items_in_batch: Number of labels of the update that the batch is a part of, by default its own.
            kwargs: Arguments that a trainer gives every model.
        """
        position_ids = positions_of_rows(position_ids, input_ids)
        refuse_packed(position_ids, attention_mask)
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        self.check_lengths(mask)
        self.refuse_padding(mask)
        self.refuse_positions(position_ids, mask)
        types = kwargs.pop("token_type_ids", None)
        if self.config.type_vocab_size and types is not None and types.any():
            raise UnsupportedOperationError(f"{self.engine_name} reads no token_type_ids; ask the original model")
        refuse_unread(kwargs)
        encodes = self.config.stack == "encoder"
        if encodes and labels is None:
            return BaseModelOutput(last_hidden_state=self.encode(input_ids, mask.bool()))
        if labels is None or encodes:
            raise UnsupportedOperationError(
                f"{self.engine_name} returns no logits here: it generates, and computes the loss of labels"
            )
        prompts = [ids[kept].tolist() for ids, kept in zip(input_ids, mask.bool(), strict=True)]
        if self.config.is_encoder_decoder:
            texts = [translated(ids, row) for ids, row in zip(prompts, labels.tolist(), strict=True)]
            kind: type[CausalLMOutput | Seq2SeqLMOutput] = Seq2SeqLMOutput
        else:
            following = F.pad(labels[:, 1:], (0, 1), value=IGNORED) if shift_labels is None else shift_labels
            rows = (row[kept].tolist() for row, kept in zip(following, mask.bool(), strict=True))
            texts = [continued(ids, row) for ids, row in zip(prompts, rows, strict=True)]
            kind = CausalLMOutput
        scored = self.score([text for text in texts if text.ids])
        pairs = zip(scored, (text.labels for text in texts if text.ids), strict=True)
        counted = [score for scores, row in pairs for score, label in zip(scores, row, strict=True) if label != IGNORED]
        items = len(counted) if num_items_in_batch is None else num_items_in_batch
        return kind(loss=-torch.tensor(counted).sum() / items)

    def check_lengths(self, mask: Tensor) -> None:
        """Raise InputError for texts without a token, or with more tokens than the first stack has positions."""
        refuse_added(mask)
        lengths = mask.long().sum(1)
        refuse_empty(mask[:, : int(lengths.min())])
        self.position().check(int(lengths.max()))

    def refuse_padding(self, mask: Tensor) -> None:
        """Refuse padding that moves tokens of the model, where an engine reads texts without any."""
        part, kept = self.position(), mask.bool()
        begins, is_relative = kept & ~F.pad(kept[:, :-1], (1, 0)), part.uses_rope_parameters or part.has_bias
        if part.counts_padding and (begins.sum(1) > 1 if is_relative else begins[:, 1:]).any():
            raise UnsupportedOperationError(
                f"{self.engine_name} reads texts without padding, and the model counts places before and between their "
                "tokens: pad on the right, or ask the original model"
            )

    def encode(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        """Hidden states of the engine's encoder, (batch_size, seq_len, hidden_size), zero at padding."""
        raise NotImplementedError

    def score(self, texts: list[ScoredText]) -> list[list[float]]:
        """Let the engine compute the log-probability of every target id."""
        raise NotImplementedError

    def write(self, input_ids: Tensor, mask: Tensor, settings: GenerationConfig) -> list[list[Written]]:
        """The engine's output for every prompt, (batch_size, seq_len), by settings with `max_new_tokens`."""
        raise NotImplementedError

    @torch.no_grad()
    def generate(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        streamer: Any = None,
        labels: Tensor | None = None,
        synced_gpus: bool | None = None,
        **options: Any,
    ) -> Any:
        """Generate as transformers would; scores, if asked for, are mean log-probabilities a token."""
        settings = copy.deepcopy(generation_config or self.generation_config)
        unknown = {name: options.pop(name) for name in [*options] if not hasattr(settings, name)}
        foreign = [name for name, value in unknown.items() if isinstance(value, Tensor) or value]
        refuse_foreign(self.engine_name, foreign)
        for name, value in options.items():
            setattr(settings, name, value)
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        causal = not self.config.is_encoder_decoder
        self.check_lengths(mask)
        if not causal:  # transformers' search counts no padding of a decoder
            self.refuse_padding(mask)
        begin = input_ids.shape[1] if causal else 1
        if settings.max_new_tokens is None:
            longest = min(begin + DEFAULTS["max_length"], self.config.max_position_embeddings)
            most = longest if settings.max_length is None else settings.max_length
            settings.max_new_tokens = most - begin
            if most <= begin:
                raise InputError(
                    f"{begin} tokens were given, and max_length={most} leaves no room for another; shorten the text or "
                    "give max_new_tokens"
                )
        if settings.max_new_tokens < 1:
            raise ConfigError(f"max_new_tokens={settings.max_new_tokens} is not valid; valid: 1 and more")
        if settings.do_sample:
            if settings.temperature is not None and not settings.temperature > 0:
                raise ConfigError(f"temperature={settings.temperature} is not valid for sampling; valid: above 0")
            size = self.config.vocab_size if causal else self.config.decoder_vocab_size
            settings.top_k = min(DEFAULTS["top_k"] if settings.top_k is None else settings.top_k, size)
        sequences, scores = [], []
        for prompt, written in zip(input_ids.tolist(), self.write(input_ids, mask.bool(), settings), strict=True):
            before = prompt if causal else [self.config.decoder_start_token_id]
            sequences += [torch.tensor([*before, *ids]) for ids, _ in written]
            scores += [score for _, score in written]
        pad = settings.pad_token_id if settings.pad_token_id is not None else (self.config.pad_token_id or 0)
        padded = pad_sequence(sequences, batch_first=True, padding_value=pad)
        if streamer is not None:
            streamer.put(input_ids)
            streamer.put(padded[0, begin:])
            streamer.end()
        if not settings.return_dict_in_generate:
            return padded
        kind = GenerateBeamDecoderOnlyOutput if causal else GenerateBeamEncoderDecoderOutput
        return kind(sequences=padded, sequences_scores=torch.tensor(scores) if is_scored(settings) else None)
