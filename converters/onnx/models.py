"""Exported graphs as models, with transformers' own generation."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutputWithPast, Seq2SeqLMOutput

from zoo.errors import InputError
from zoo.models import ZooConfig

from ..engine import NoPosition
from .graphs import names_of_cache
from .modules import content, filled_cache
from .session import OnnxBase
from .target import DECODER, ENCODER, WHOLE


class OnnxModel(OnnxBase):
    """An exported model that generates nothing. Arguments as for the class."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Compute what was exported.

        Args:
            input_ids: *Shape:* (batch_size, seq_len)
            attention_mask: *Shape:* (batch_size, seq_len)
            decoder_input_ids: Of an encoder-decoder. *Shape:* (batch_size, target_len)
            token_type_ids: Of an encoder with types, by default 0. *Shape:* (batch_size, seq_len)
            kwargs: Refused unless they ask for nothing.

        Returns:
            `logits` or `last_hidden_state`.
        """
        self.refuse(kwargs)
        given = {"input_ids": input_ids, "attention_mask": self.mask(attention_mask, input_ids)}
        if decoder_input_ids is not None:
            given["decoder_input_ids"] = decoder_input_ids
        given["token_type_ids"] = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        outputs = self.run(WHOLE, given)
        if "logits" in outputs:
            return CausalLMOutputWithPast(logits=outputs["logits"])
        return BaseModelOutput(last_hidden_state=outputs["last_hidden_state"])


class OnnxForCausalLM(OnnxBase, GenerationMixin):
    """An exported causal language model. Arguments as for the class."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: DynamicCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Predict the next token at every position. Arguments as for [`zoo.models.ZooForCausalLM`][]."""
        self.refuse(kwargs)
        past = past_of(past_key_values, self.config, len(input_ids))
        seen = past[0].shape[2]
        if position_ids is None:
            part = cast(NoPosition, self.positions[0])
            position_ids = part.count(input_ids, attention_mask, seen).expand(len(input_ids), -1)
        layers = self.config.num_hidden_layers
        outputs = self.run(
            WHOLE,
            {
                "input_ids": input_ids,
                "attention_mask": self.mask(attention_mask, input_ids, seen),
                "position_ids": position_ids,
                **dict(zip(names_of_cache("past_key_values", layers), past, strict=True)),
            },
        )
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=outputs["logits"], labels=labels, vocab_size=self.config.vocab_size)
        cache = cache_of(outputs, names_of_cache("present", layers)) if use_cache is not False else None
        return CausalLMOutputWithPast(loss=loss, logits=outputs["logits"], past_key_values=cache)


class OnnxForConditionalGeneration(OnnxBase, GenerationMixin):
    """An exported encoder-decoder. Arguments as for the class."""

    def __init__(self, config: ZooConfig, folder: Path) -> None:
        super().__init__(config, folder)
        self.loss_type = "ForMaskedLM"  # labels and logits are aligned

    def get_encoder(self, *args: Any, **kwargs: Any) -> OnnxEncoder:
        """The encoder, as generation calls it."""
        return OnnxEncoder(self)

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> BaseModelOutput:
        """Run the encoder.

        Args:
            input_ids: *Shape:* (batch_size, source_len)
            attention_mask: *Shape:* (batch_size, source_len)
            kwargs: Refused unless they ask for nothing.

        Returns:
            `last_hidden_state`, and keys and values of the source for every decoder layer.
        """
        self.refuse(kwargs)
        mask = self.mask(attention_mask, input_ids)
        outputs = self.run(ENCODER, {"input_ids": input_ids, "attention_mask": mask})
        encoded = BaseModelOutput(last_hidden_state=outputs["last_hidden_state"])
        for name, tensor in outputs.items():
            encoded[name] = tensor
        return encoded

    def decoder_inputs(self, input_ids: Tensor | None, labels: Tensor | None) -> Tensor:
        """Make decoder inputs by the variant's rule. Arguments as for the model of the zoo."""
        return self.rules.decoder_inputs(input_ids, labels, self.config)

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Make decoder inputs from labels; data collators call this. Arguments as for the model of the zoo."""
        return self.decoder_inputs(None, labels)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: DynamicCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Predict the next target token. Arguments as for [`zoo.models.ZooForConditionalGeneration`][]."""
        self.refuse(kwargs)
        if encoder_outputs is None:
            encoder_outputs = self.encode(require(input_ids), attention_mask)
        encoded = encoder_outputs.last_hidden_state
        if decoder_input_ids is None:
            decoder_input_ids = self.decoder_inputs(input_ids, labels)
        if attention_mask is None:
            attention_mask = (
                torch.ones(encoded.shape[:2], dtype=torch.long) if input_ids is None else self.mask(None, input_ids)
            )
        decoder = self.config.decoder_config()
        past = past_of(past_key_values, decoder, len(decoder_input_ids))
        layers = decoder.num_hidden_layers
        crossing = {name.replace("present", "past_key_values"): tensor for name, tensor in encoder_outputs.items()}
        outputs = self.run(
            DECODER,
            {
                **crossing,
                "input_ids": decoder_input_ids,
                "encoder_attention_mask": attention_mask.long(),
                "encoder_hidden_states": encoded,
                "decoder_attention_mask": self.mask(decoder_attention_mask, decoder_input_ids, past[0].shape[2]),
                **dict(zip(names_of_cache("past_key_values", layers, "decoder."), past, strict=True)),
            },
        )
        logits = outputs["logits"]
        loss = None if labels is None else self.loss_function(logits, labels, vocab_size=logits.shape[-1])
        wanted = self.config.use_cache if use_cache is None else use_cache
        cache = cache_of(outputs, names_of_cache("present", layers, "decoder.")) if wanted else None
        return Seq2SeqLMOutput(loss=loss, logits=logits, past_key_values=cache, encoder_last_hidden_state=encoded)


class OnnxEncoder:
    """What generation asks for the encoder's output.

    Args:
        model: The whole model.
    """

    main_input_name = "input_ids"

    def __init__(self, model: OnnxForConditionalGeneration) -> None:
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> BaseModelOutput:
        """Run the encoder. Arguments as for [`OnnxForConditionalGeneration.encode`][]."""
        return self.model.encode(input_ids, attention_mask, **kwargs)

    __call__ = forward


def past_of(cache: DynamicCache | None, config: ZooConfig, batch_size: int) -> tuple[Tensor, ...]:
    """Keys and values of earlier positions, of which there may be none.

    Args:
        cache: A cache, or None.
        config: The decoder's configuration.
        batch_size: Number of sequences.

    Returns:
        Two tensors a layer. *Shape:* (batch_size, num_key_value_heads, seen, head_dim)
    """
    if cache is not None and cache.layers:
        return content(cache)
    nothing = torch.zeros(batch_size, config.num_key_value_heads, 0, config.head_dim)
    return (nothing,) * (2 * config.num_hidden_layers)


def cache_of(outputs: dict[str, Tensor], names: list[str]) -> DynamicCache:
    """Make a cache of what a graph returned.

    Args:
        outputs: By name.
        names: Keys and values in the order of the layers.
    """
    tensors = [outputs[name] for name in names]
    return filled_cache(list(zip(tensors[::2], tensors[1::2], strict=True)))


def require(input_ids: Tensor | None) -> Tensor:
    """Refuse a call without source ids.

    Args:
        input_ids: *Shape:* (batch_size, source_len)

    Raises:
        InputError: When there are none.
    """
    if input_ids is None:
        raise InputError("nothing to read: give input_ids, or encoder_outputs")
    return input_ids
