"""The head of an encoder-decoder: sequence-to-sequence language modeling."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.utils.generic import can_return_tuple

from zoo.base.errors import InputError
from zoo.fast.captured_steps import with_captured_steps
from zoo.fast.generation import CachedGenerationMixin
from zoo.fast.preallocated_cache import CACHE_NAME
from zoo.fast.unpad_layers import mask_to_last_label, projected_positions

from .configuration import ZooConfig
from .context import cache_of_either_name
from .encoder_decoder import RECORDED, ZooEncoderDecoder
from .feed_forwards.routing import routed_tokens
from .language_modeling import LanguageModel
from .parts import FEED_FORWARDS
from .pretrained import CallOptions


class ZooForConditionalGeneration(LanguageModel, CachedGenerationMixin):
    """An encoder-decoder that predicts the next target token."""

    def __init__(self, config: ZooConfig) -> None:
        config = config.of_stack("encoder-decoder")
        super().__init__(config, ZooEncoderDecoder(config))
        # Labels and logits are aligned, so transformers' loss without a shift is the masked one.
        self.loss_type = "ForMaskedLM"
        self.post_init()

    @property
    def ties(self) -> dict[str, tuple[str, str]]:  # type: ignore[override]
        """The output projection, if it is the target embedding."""
        stack = "encoder" if self.config.share_encoder_decoder_embeddings else "decoder"
        return {"tie_word_embeddings": ("lm_head.weight", f"model.{stack}.embed_tokens.weight")}

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Resize the source vocabulary, and the target vocabulary too if both have one size."""
        embedding = self.model.resize_token_embeddings(*args, **kwargs)
        self.resize_head()
        return embedding

    def resize_decoder_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Resize the target vocabulary alone."""
        embedding = self.model.resize_decoder_token_embeddings(*args, **kwargs)
        self.resize_head()
        return embedding

    def resize_head(self) -> None:
        """Resize the output projection to the target vocabulary, and tie it again."""
        self.vocab_size = self.config.vocab_size
        trains = self.lm_head.weight.requires_grad
        self.lm_head = self._get_resized_lm_head(self.lm_head, self.config.decoder_vocab_size).requires_grad_(trains)
        self.tie_weights()

    def decoder_inputs(self, input_ids: Tensor | None, labels: Tensor) -> Tensor:
        """Decoder inputs, (batch_size, target_len), by the variant's rule."""
        return self.model.decoder.transformer.decoder_inputs(input_ids, labels, self.config)

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Decoder inputs of labels, (batch_size, target_len); data collators call this."""
        return self.decoder_inputs(None, labels)

    def shows_positions(self, options: Any) -> bool:
        """Whether an output other than the loss, by the forward's options, depends on positions without a label."""
        recorded = any(options.get(name) or getattr(self.config, name, False) for name in RECORDED)
        counts = getattr(FEED_FORWARDS.get(self.config.feed_forward), "counts_tokens", False)
        return recorded or counts or not self.drops_masks

    @with_captured_steps
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Any = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Any = None,
        decoder_position_ids: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        skip_logits: bool = False,
        loss_smoothing: float = 0.0,
        z_loss: float = 0.0,
        **kwargs: CallOptions,
    ) -> Seq2SeqLMOutput:
        """Predict the next target token at every target position.

        Args:
            input_ids: Source ids. *Shape:* (batch_size, source_len)
            attention_mask: 1 for real source tokens. *Shape:* (batch_size, source_len)
            decoder_input_ids: Target ids, by default made from labels. *Shape:* (batch_size, target_len)
            decoder_attention_mask: 1 for real target tokens, cached ones included. *Shape:* (batch_size, key_len)
            decoder_position_ids: Target positions. *Shape:* (batch_size, target_len)
            encoder_outputs: Outputs of an earlier call of the encoder, to skip it.
            past_key_values: Keys and values of earlier target positions and of the source.
            inputs_embeds: Instead of input_ids. *Shape:* (batch_size, source_len, hidden_size)
            decoder_inputs_embeds: Instead of decoder_input_ids. *Shape:* (batch_size, target_len, hidden_size)
            labels: Target ids, -100 to ignore; not shifted. In training mode with gradients, a CPU leaves
                out positions after the last label of a row, unless `decoder_attention_mask` is given: the loss does not
                depend on them, and their logits are zeros. *Shape:* (batch_size, target_len)
            use_cache: Whether to return keys and values; never with labels.
            skip_logits: Whether to compute the loss without the logits, which are then None: they are the largest
                tensor of a training step.
            loss_smoothing: Label smoothing: the share of the target that the loss spreads over the whole vocabulary.
            z_loss: Weight of the squared log of the softmax's normalizer in the loss (PaLM: 1e-4).
            kwargs: `cache` (`past_key_values` by the name of transformers 5.24), `output_attentions`,
                `output_hidden_states`, `return_dict`, `num_items_in_batch`, and arguments of attention backends.

        Returns:
            `logits`, *Shape:* (batch_size, target_len, decoder_vocab_size), the loss if labels are given, the cache,
            and the outputs that were requested.
        """
        past_key_values = cache_of_either_name(past_key_values, kwargs) if "cache" in kwargs else past_key_values
        predicted = None
        if labels is not None:
            use_cache = False
            given = input_ids if inputs_embeds is None else inputs_embeds
            source = given if encoder_outputs is None else encoder_outputs[0]
            if labels.ndim != 2 or (source is not None and labels.shape[0] != source.shape[0]):
                rows = "batch_size" if source is None else source.shape[0]
                raise InputError(f"labels of shape {tuple(labels.shape)} were given; valid: ({rows}, target_len)")
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.decoder_inputs(input_ids, labels)
            seen = (decoder_attention_mask, decoder_position_ids, past_key_values)
            only_loss = skip_logits or (self.training and torch.is_grad_enabled())
            if only_loss and all(one is None for one in seen) and not self.shows_positions(kwargs):
                decoder_attention_mask = mask_to_last_label(self.model.decoder, labels)
                predicted = projected_positions(decoder_attention_mask, self.head_modules())
        inputs = (decoder_input_ids, decoder_inputs_embeds)
        tokens = {} if labels is None else routed_tokens(self.config, decoder_attention_mask, labels, *inputs)
        outputs = self.model(
            **tokens,
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
        options = {"skip_logits": skip_logits, "label_smoothing": loss_smoothing, "z_loss": z_loss, **kwargs}
        states = outputs.last_hidden_state
        if predicted is None or labels is None:
            logits, loss = self.logits_and_loss(states, labels, **options)
        else:
            logits, loss = self.logits_and_loss(predicted.unpad(states), predicted.unpad(labels), **options)
            logits = None if logits is None else predicted.pad(logits)
        output = Seq2SeqLMOutput(
            loss,
            logits,
            getattr(outputs, CACHE_NAME),
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
        )
        if labels is not None or encoder_outputs is None:  # beams share what the encoder routed once
            output = self.balanced(output, outputs, attention_mask, labels, kwargs, "encoder_")
        return self.balanced(output, outputs, decoder_attention_mask, labels, tokens | kwargs, "decoder_")
