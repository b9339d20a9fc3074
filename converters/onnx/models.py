"""Graphs that an engine runs as models, with transformers' own generation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache
from transformers.modeling_outputs import (
    BaseModelOutput,
    CausalLMOutputWithPast,
    MaskedLMOutput,
    Seq2SeqLMOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils.generic import can_return_tuple

from zoo.base.errors import CheckpointError, InputError, first_line
from zoo.fast.generation import OrderedGenerationMixin
from zoo.models import ZooConfig, ZooForSequenceClassification
from zoo.models.context import Context, cache_of_either_name, check_distances
from zoo.models.language_modeling import keep_positions, next_labels
from zoo.models.transformer import Transformer, transformer_of
from zoo.registry import Task

from ..engine import (
    EngineModel,
    positions_of_rows,
    refuse_added,
    refuse_empty,
    refuse_packed,
    refuse_unread,
    task_saved,
)
from .graphs import DECODER, ENCODER, WHOLE, content, filled_cache

PAST, PRESENT = "past_key_values.", "present."  # How names of keys and values begin, of inputs and of outputs
BRANCH = "use_cache_branch"  # The input of graphs with two branches, as Optimum calls it: whether a cache is given


def is_cached(name: str) -> bool:
    """Whether a tensor's name is that of keys or values which grow with every token, unlike those of the source."""
    return name.startswith((PAST, PRESENT)) and ".encoder." not in name


Session = Callable[[Mapping[str, Tensor], Any], tuple[dict[str, Tensor], Any]]
"""A graph in an engine: makes outputs and a cache of inputs and an earlier cache or None."""


class OnnxSession:
    """A graph in ONNX Runtime, on as many threads as torch has. Keys and values go in and out."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        try:
            self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            # Its own exceptions have no common base but this one.
            raise CheckpointError(f"ONNX Runtime cannot load {path}: {first_line(error)}") from error

    def __call__(self, given: Mapping[str, Tensor], past: Any) -> tuple[dict[str, Tensor], DynamicCache | None]:
        names = [entry.name for entry in self.session.get_outputs()]
        cached = [entry for entry in self.session.get_inputs() if entry.name.replace(PAST, PRESENT) in names]
        if has_past := past is not None and bool(past.layers):
            pairs = content(past)
        else:
            rows = len(given["input_ids"])
            pairs = tuple(torch.zeros(rows, entry.shape[1], 0, entry.shape[3]) for entry in cached)
        known = {**given, BRANCH: torch.tensor([has_past])}
        known |= dict(zip((entry.name for entry in cached), pairs, strict=True))
        read = {entry.name: known[entry.name].contiguous().numpy() for entry in self.session.get_inputs()}
        if below := [name for name, numbers in read.items() if name.endswith("_ids") and (numbers < 0).any()]:
            raise InputError(f"{below[0]} has ids below 0, which ONNX Runtime counts from the end; valid: 0 and more")
        try:
            found = self.session.run(names, read)
        except Exception as error:  # its own exceptions have no common base but this one
            raise InputError(f"ONNX Runtime refuses these inputs: {first_line(error)}") from error
        outputs = dict(zip(names, map(torch.from_numpy, found), strict=True))
        present = [outputs.pop(entry.name.replace(PAST, PRESENT)) for entry in cached]
        return outputs, filled_cache(list(zip(present[::2], present[1::2], strict=True))) if present else None


def check_labels(labels: Tensor, logits: Tensor) -> None:
    """Require one label for each position of the logits: transformers' losses lay both end to end."""
    if labels.shape != (shape := logits.shape[:-1]):
        raise InputError(f"labels of shape {tuple(labels.shape)} were given for positions of {tuple(shape)}")


def length_of(past: Cache | None) -> int:
    return past.get_seq_length() if past is not None else 0


class GraphModel(EngineModel):
    """Graphs as a model of transformers."""

    _is_stateful = True  # transformers refuses assisted generation, for which a cache has to forget positions

    def __init__(self, config: ZooConfig, folder: Path, sessions: Mapping[str, Session]) -> None:
        super().__init__(config, folder)
        self.sessions = dict(sessions)
        if self.task in LOSSES:
            self.loss_type = LOSSES[self.task]

    @property
    def rules(self) -> Transformer:
        """The variant's own rules for masks and decoder inputs, which stay outside of the graphs."""
        return transformer_of(self.config)

    def run(self, name: str, given: Mapping[str, Tensor], past: Any = None) -> tuple[dict[str, Tensor], Any]:
        """Run a graph, which reads integers of 64 bits."""
        whole = {key: tensor if tensor.is_floating_point() else tensor.long() for key, tensor in given.items()}
        return self.sessions[name](whole, past)

    def mask(self, attention_mask: Tensor | None, input_ids: Tensor, seen: int = 0) -> Tensor:
        """The given padding mask, or one by the variant's rule. *Shape:* (batch_size, key_len)."""
        if attention_mask is None and not seen and (rule := self.rules.attention_mask) is not None:
            attention_mask = rule(None, input_ids, self.config)
        rows, length = input_ids.shape[0], seen + input_ids.shape[1]
        if attention_mask is None:
            attention_mask = input_ids.new_ones(rows, length)
        refuse_added(attention_mask)
        if attention_mask.ndim != 2 or len(attention_mask) not in (1, rows) or attention_mask.shape[1] != length:
            raise InputError(
                f"an attention_mask of shape {tuple(attention_mask.shape)} was given, which an engine might stretch; "
                f"valid: {(rows, length)}, with 1 for real tokens, cached ones included"
            )
        return attention_mask.long().expand(rows, -1)

    def place(self, input_ids: Tensor, attention_mask: Tensor | None, seen: int = 0, stack: int = 0) -> Tensor:
        """Positions by the variant's rule, (batch_size, seq_len); stack 1 is the decoder of an encoder-decoder."""
        refuse_empty(input_ids)
        part = self.position(stack)
        position_ids = part.count(input_ids, attention_mask, seen).expand(len(input_ids), -1)
        part.check(seen + input_ids.shape[1], position_ids)
        return position_ids

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        # Generation would prepare a cache that forgets what a sliding window has passed; graphs want all of it.
        return False


LOSSES: dict[str, str] = {  # transformers' losses by task, where the name of our class does not lead to it
    Task.MASKED_LM: "ForMaskedLM",
    Task.SEQUENCE_CLASSIFICATION: "ForSequenceClassification",
    Task.TOKEN_CLASSIFICATION: "ForTokenClassification",
    Task.SEQ2SEQ_LM: "ForMaskedLM",  # labels and logits are aligned
}

OUTPUTS: dict[str, type[MaskedLMOutput | SequenceClassifierOutput | TokenClassifierOutput]] = {
    Task.MASKED_LM: MaskedLMOutput,
    Task.SEQUENCE_CLASSIFICATION: SequenceClassifierOutput,
    Task.TOKEN_CLASSIFICATION: TokenClassifierOutput,
}


class WholeModel(GraphModel):
    """An exported model that generates nothing."""

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        causal_rows: Tensor | None = None,
        position_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Compute what was exported: `logits` with the loss of labels, or `last_hidden_state`."""
        refuse_unread({**kwargs, "causal_rows": causal_rows})
        mask = self.mask(attention_mask, input_ids)
        self.place(input_ids, mask)
        self.refuse_positions(positions_of_rows(position_ids, input_ids), mask)
        given = {"input_ids": input_ids, "attention_mask": mask}
        if self.config.is_encoder_decoder:
            if decoder_input_ids is None:
                decoder_input_ids = self.rules.decoder_inputs(input_ids, None, self.config)
            self.place(decoder_input_ids, None, stack=1)
            given["decoder_input_ids"] = decoder_input_ids
        given["token_type_ids"] = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        outputs, _ = self.run(WHOLE, given)
        if "logits" not in outputs:
            return BaseModelOutput(last_hidden_state=outputs["last_hidden_state"])
        logits, loss = outputs["logits"], None
        if labels is not None:
            if self.task != Task.SEQUENCE_CLASSIFICATION:
                check_labels(labels, logits)
            if self.task == Task.MASKED_LM and self.config.masked_next_token:
                labels = next_labels(labels)
            scored = {"logits": logits, "pooled_logits": logits, "labels": labels, "config": self.config}
            loss = self.loss_function(**scored, vocab_size=logits.shape[-1], **kwargs)
            if self.task == Task.SEQUENCE_CLASSIFICATION:
                loss = ZooForSequenceClassification.share_of_update(loss, labels, self.config, **kwargs)
        return OUTPUTS[self.task](loss=loss, logits=logits)


class GraphForCausalLM(GraphModel, OrderedGenerationMixin):
    """An exported causal language model."""

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        past_key_values = cache_of_either_name(past_key_values, kwargs) if "cache" in kwargs else past_key_values
        refuse_unread(kwargs)
        position_ids = positions_of_rows(position_ids, input_ids)
        refuse_packed(position_ids, attention_mask)
        refuse_empty(input_ids)
        seen = length_of(past_key_values)
        if position_ids is None:
            position_ids = self.place(input_ids, attention_mask, seen)
        self.position().check(seen + input_ids.shape[1], position_ids)
        mask = self.mask(attention_mask, input_ids, seen)
        if self.position().has_bias:
            context = Context(mask, None, None, given_positions=position_ids)
            check_distances(context, ["full_attention"], is_decoder=True)
        given = {"input_ids": input_ids, "attention_mask": mask, "position_ids": position_ids}
        outputs, cache = self.run(WHOLE, given, past_key_values)
        logits, loss = outputs["logits"], None
        if isinstance(logits_to_keep, Tensor) or logits_to_keep:
            logits = keep_positions(logits, logits_to_keep)
        if labels is not None:
            check_labels(labels, logits)
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(loss, logits, cache if use_cache is not False else None)


class GraphForConditionalGeneration(GraphModel, OrderedGenerationMixin):
    """An exported encoder-decoder."""

    def get_encoder(self, *args: Any, **kwargs: Any) -> GraphEncoder:
        return GraphEncoder(self)

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> BaseModelOutput:
        """Run the encoder: `last_hidden_state`, and keys and values of the source for every decoder layer."""
        refuse_unread(kwargs)
        mask = self.mask(attention_mask, input_ids)
        self.place(input_ids, mask)
        outputs, _ = self.run(ENCODER, {"input_ids": input_ids, "attention_mask": mask})
        encoded = BaseModelOutput(last_hidden_state=outputs["last_hidden_state"])
        for name, tensor in outputs.items():
            encoded[name] = tensor
        return encoded

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        return self.rules.decoder_inputs(None, labels, self.config)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: Cache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        past_key_values = cache_of_either_name(past_key_values, kwargs) if "cache" in kwargs else past_key_values
        refuse_unread(kwargs)
        if encoder_outputs is None:
            if input_ids is None:
                raise InputError("nothing to read: give input_ids, or encoder_outputs")
            encoder_outputs = self.encode(input_ids, attention_mask)
        encoded = encoder_outputs.last_hidden_state
        if decoder_input_ids is None:
            decoder_input_ids = self.rules.decoder_inputs(input_ids, labels, self.config)
        read = torch.ones(encoded.shape[:2], dtype=torch.long) if input_ids is None else input_ids
        attention_mask = self.mask(attention_mask, read)
        if len(decoder_input_ids) != len(encoded):
            raise InputError(f"{len(encoded)} sources were given for {len(decoder_input_ids)} targets")
        seen = length_of(past_key_values)
        mask = self.mask(decoder_attention_mask, decoder_input_ids, seen)
        self.place(decoder_input_ids, mask, seen, stack=1)
        crossing = {name.replace(PRESENT, PAST): tensor for name, tensor in encoder_outputs.items()}
        given = {
            **crossing,
            "input_ids": decoder_input_ids,
            "encoder_attention_mask": attention_mask,
            "encoder_hidden_states": encoded,
            "decoder_attention_mask": mask,
        }
        outputs, cache = self.run(DECODER, given, past_key_values)
        logits, loss = outputs["logits"], None
        if labels is not None:
            check_labels(labels, logits)
            loss = self.loss_function(logits, labels, vocab_size=logits.shape[-1], **kwargs)
        kept = cache if (self.config.use_cache if use_cache is None else use_cache) else None
        return Seq2SeqLMOutput(loss, logits, kept, encoder_last_hidden_state=encoded)


class GraphEncoder:
    """Generation's access to the encoder's output."""

    main_input_name = "input_ids"

    def __init__(self, model: GraphForConditionalGeneration) -> None:
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> BaseModelOutput:
        return self.model.encode(input_ids, attention_mask, **kwargs)

    __call__ = forward


CLASSES: dict[str, type[GraphModel]] = {  # By the task; all others do not generate
    Task.SEQ2SEQ_LM: GraphForConditionalGeneration,
    Task.CAUSAL_LM: GraphForCausalLM,
}


def model_of(folder: Path, sessions: Mapping[str, Session]) -> GraphModel:
    config = ZooConfig.from_pretrained(folder)
    return CLASSES.get(task_saved(config), WholeModel)(config, folder, sessions)
