"""Heads that predict tokens: causal, masked and sequence-to-sequence language modelling."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin
from transformers.loss.loss_utils import ForMaskedLMLoss
from transformers.modeling_outputs import CausalLMOutputWithPast, MaskedLMOutput, Seq2SeqLMOutput
from transformers.utils.generic import can_return_tuple

from .configuration import ZooConfig
from .encoder_decoder import ZooEncoderDecoder
from .norms import build_norm
from .pretrained import ZooPreTrainedModel
from .stacks import ZooDecoder, ZooEncoder
from .transformer import transformer_of


class LanguageModel(ZooPreTrainedModel):
    """What the three heads have in common: a body, and a projection onto the vocabulary.

    Args:
        config: A complete configuration.
        body: The model whose hidden states are projected.
        embedding: Name of the parameter that the projection is when embeddings are tied.
    """

    _tp_plan = {"lm_head": "colwise_gather_output"}
    _fsdp_plan = {"lm_head": "keep_full_weight"}

    def __init__(self, config: ZooConfig, body: ZooPreTrainedModel, embedding: str) -> None:
        super().__init__(config)
        self.model = body
        self.tied_embedding = embedding
        self.lm_head = nn.Linear(
            config.hidden_size, transformer_of(config).output_size(config), bias=config.lm_head_bias
        )

    def tied_weights(self) -> dict[str, str]:
        """The output projection, if it is the embedding."""
        return {"lm_head.weight": self.tied_embedding} if self.config.tie_word_embeddings else {}

    def project(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Score every token id.

        Args:
            hidden_states: *Shape:* (..., hidden_size)

        Returns:
            *Shape:* (..., vocab_size)
        """
        logits = self.lm_head(hidden_states)
        if self.config.logit_scale != 1.0:
            logits = logits * self.config.logit_scale
        if (cap := self.config.final_logit_softcapping) is not None:
            logits = cap * torch.tanh(logits / cap)
        return logits


def keep_positions(hidden_states: torch.Tensor, logits_to_keep: int | torch.Tensor) -> torch.Tensor:
    """Drop positions whose logits nobody asked for, before the costly projection.

    Args:
        hidden_states: *Shape:* (batch_size, seq_len, hidden_size)
        logits_to_keep: How many last positions to keep, 0 for all; or their indices, *Shape:* (num_positions,), also
            per sequence, *Shape:* (batch_size, num_positions); or a boolean mask, *Shape:* (batch_size, seq_len).

    Returns:
        *Shape:* (batch_size, num_positions, hidden_size), or (num_kept, hidden_size) for a mask.
    """
    if isinstance(logits_to_keep, int):
        return hidden_states[:, -logits_to_keep:] if logits_to_keep else hidden_states
    if logits_to_keep.dtype == torch.bool:
        return hidden_states[logits_to_keep]
    if logits_to_keep.ndim == 1:
        return hidden_states[:, logits_to_keep]
    return hidden_states.take_along_dim(logits_to_keep[..., None], dim=1)


class ZooForCausalLM(LanguageModel, GenerationMixin):
    """A decoder that predicts the next token.

    Args:
        config: A configuration with `is_decoder`.
    """

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config, ZooDecoder(config), "model.embed_tokens.weight")
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: Any = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Predict the next token at every position.

        Args:
            input_ids: Token ids. *Shape:* (batch_size, seq_len)
            attention_mask: 1 for real tokens, cached ones included. *Shape:* (batch_size, key_len)
            position_ids: Positions, by default counted on from the cache. *Shape:* (batch_size, seq_len)
            past_key_values: Keys and values of earlier positions, extended in place.
            inputs_embeds: Instead of input_ids. *Shape:* (batch_size, seq_len, hidden_size)
            labels: Token ids, -100 where there is no loss; they are shifted here. *Shape:* (batch_size, seq_len)
            use_cache: Whether to return keys and values.
            logits_to_keep: Positions to predict at, see [`keep_positions`][].
            kwargs: `output_attentions`, `output_hidden_states`, `return_dict`, `num_items_in_batch`, and what attention
                backends take.

        Returns:
            `logits`, *Shape:* (batch_size, num_positions, vocab_size), the loss if there are labels, the cache, and
            what was asked for.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        logits = self.project(keep_positions(outputs.last_hidden_state, logits_to_keep))
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class PredictionTransform(nn.Module):
    """BERT's transform before the output projection: dense, activation, norm.

    Args:
        config: Supplies `hidden_size`, `hidden_act` and the norm.
    """

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.act_fn = ACT2FN[config.hidden_act]
        self.norm = build_norm(config)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Transform. *Shape:* (batch_size, seq_len, hidden_size), unchanged."""
        return self.norm(self.act_fn(self.dense(hidden_states)))


class ZooForMaskedLM(LanguageModel):
    """An encoder that predicts masked tokens (BERT).

    Args:
        config: A configuration of an encoder.
    """

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config, ZooEncoder(config), "model.embed_tokens.weight")
        self.transform = PredictionTransform(config) if config.lm_head_transform else nn.Identity()
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: Any = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """Predict the token at every position.

        Args:
            input_ids: Token ids. *Shape:* (batch_size, seq_len)
            attention_mask: 1 for real tokens. *Shape:* (batch_size, seq_len)
            position_ids: Positions, by default 0, 1, ... *Shape:* (batch_size, seq_len)
            inputs_embeds: Instead of input_ids. *Shape:* (batch_size, seq_len, hidden_size)
            labels: Token ids, -100 where there is no loss. *Shape:* (batch_size, seq_len)
            kwargs: `output_attentions`, `output_hidden_states`, `return_dict`, `num_items_in_batch`, and what attention
                backends take.

        Returns:
            `logits`, *Shape:* (batch_size, seq_len, vocab_size), the loss if there are labels, and what was asked for.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
        logits = self.project(self.transform(outputs.last_hidden_state))
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class ZooForConditionalGeneration(LanguageModel, GenerationMixin):
    """An encoder-decoder that predicts the next target token.

    Args:
        config: A configuration with `is_encoder_decoder`.
    """

    def __init__(self, config: ZooConfig) -> None:
        stack = "encoder" if config.share_encoder_decoder_embeddings else "decoder"
        super().__init__(config, ZooEncoderDecoder(config), f"model.{stack}.embed_tokens.weight")
        self.post_init()

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Resize the source vocabulary, and the target vocabulary with it while both have one size.

        Args:
            args: As for [`ZooEncoderDecoder.resize_token_embeddings`][].
            kwargs: Likewise.

        Returns:
            The source embedding.
        """
        embedding = self.model.resize_token_embeddings(*args, **kwargs)
        self.resize_head()
        return embedding

    def resize_decoder_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Resize the target vocabulary alone.

        Args:
            args: As for [`ZooEncoderDecoder.resize_decoder_token_embeddings`][].
            kwargs: Likewise.

        Returns:
            The target embedding.
        """
        embedding = self.model.resize_decoder_token_embeddings(*args, **kwargs)
        self.resize_head()
        return embedding

    def resize_head(self) -> None:
        """Let the output projection score every token id of the target vocabulary, and tie it again."""
        trains = self.lm_head.weight.requires_grad
        self.lm_head = self._get_resized_lm_head(self.lm_head, self.config.decoder_vocab_size).requires_grad_(trains)
        self.tie_weights()

    def decoder_inputs(self, input_ids: torch.Tensor | None, labels: torch.Tensor) -> torch.Tensor:
        """Make decoder inputs by the variant's rule.

        Args:
            input_ids: Source ids. *Shape:* (batch_size, source_len)
            labels: *Shape:* (batch_size, target_len)

        Returns:
            *Shape:* (batch_size, target_len)
        """
        return self.model.decoder.transformer.decoder_inputs(input_ids, labels, self.config)

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Make decoder inputs from labels; data collators call this.

        Args:
            labels: *Shape:* (batch_size, target_len)

        Returns:
            *Shape:* (batch_size, target_len)
        """
        return self.decoder_inputs(None, labels)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: Any = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: Any = None,
        decoder_position_ids: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Predict the next target token at every target position.

        Args:
            input_ids: Source ids. *Shape:* (batch_size, source_len)
            attention_mask: 1 for real source tokens. *Shape:* (batch_size, source_len)
            decoder_input_ids: Target ids, by default made from labels. *Shape:* (batch_size, target_len)
            decoder_attention_mask: 1 for real target tokens, cached ones included. *Shape:* (batch_size, key_len)
            decoder_position_ids: Target positions. *Shape:* (batch_size, target_len)
            encoder_outputs: What an earlier call of the encoder returned, to skip it.
            past_key_values: Keys and values of earlier target positions and of the source.
            inputs_embeds: Instead of input_ids. *Shape:* (batch_size, source_len, hidden_size)
            decoder_inputs_embeds: Instead of decoder_input_ids. *Shape:* (batch_size, target_len, hidden_size)
            labels: Target ids, -100 where there is no loss; not shifted. *Shape:* (batch_size, target_len)
            use_cache: Whether to return keys and values; never with labels.
            kwargs: `output_attentions`, `output_hidden_states`, `return_dict`, `num_items_in_batch`, and what attention
                backends take.

        Returns:
            `logits`, *Shape:* (batch_size, target_len, decoder_vocab_size), the loss if there are labels, the cache,
            and what was asked for.
        """
        if labels is not None:
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.decoder_inputs(input_ids, labels)
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            decoder_position_ids=decoder_position_ids,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        logits = self.project(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            # Labels and logits are aligned; transformers' function of that kind is the masked one.
            loss = ForMaskedLMLoss(logits, labels, logits.shape[-1], kwargs.get("num_items_in_batch"))
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
        )
