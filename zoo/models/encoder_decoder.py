"""The encoder-decoder body."""

from typing import Any, ClassVar

from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqModelOutput
from transformers.utils.generic import can_return_tuple

from zoo.base.errors import ConfigError
from zoo.fast.preallocated_cache import CACHE_NAME

from .configuration import ZooConfig
from .context import cache_of_either_name
from .pretrained import BODIES, CallOptions, ZooModel
from .stack import ZooDecoder, ZooEncoder

RECORDED = ("output_attentions", "output_hidden_states", "output_router_logits")
"""Outputs of both stacks that the configuration may request."""


class ZooEncoderDecoder(ZooModel):
    """An encoder, and a decoder that reads its output.

    Raises:
        ConfigError: If the configuration describes one stack only.
    """

    ties: ClassVar[dict[str, tuple[str, str]]] = {
        "share_encoder_decoder_embeddings": ("decoder.embed_tokens.weight", "encoder.embed_tokens.weight")
    }

    def __init__(self, config: ZooConfig) -> None:
        if not config.is_encoder_decoder:
            raise ConfigError(
                f"this configuration describes one {config.stack}, an encoder-decoder was asked for; "
                f"zoo.config({config.variant!r}, task='seq2seq-lm') describes one"
            )
        config = config.of_stack("encoder-decoder")
        super().__init__(config)
        self.encoder = ZooEncoder(config)
        self.decoder = ZooDecoder(config.decoder_config())
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replace the source embedding, and the target embedding if they are shared."""
        self.encoder.embed_tokens = value
        if self.config.share_encoder_decoder_embeddings:
            self.decoder.embed_tokens = value

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """Resize the source vocabulary, and the target vocabulary too if both have one size.

        Args:
            new_num_tokens: The new number of token ids, None for the old one.
            pad_to_multiple_of: Round the number up to a multiple of this.
            mean_resizing: Whether new vectors are drawn around the mean of the old ones.
        """
        have_one_size = self.config.vocab_size == self.config.decoder_vocab_size
        if have_one_size and not self.config.share_encoder_decoder_embeddings:
            self.resize_decoder_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        embedding = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        if self.config.share_encoder_decoder_embeddings:
            self.config.decoder_vocab_size = self.decoder.config.vocab_size = embedding.num_embeddings
        return embedding

    def resize_decoder_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """Resize the target vocabulary alone.

        Raises:
            ConfigError: If source and target embeddings are shared.
        """
        if self.config.share_encoder_decoder_embeddings:
            raise ConfigError(
                "share_encoder_decoder_embeddings=True makes source and target embeddings one; "
                "resize_token_embeddings resizes it"
            )
        embedding = self.decoder.resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        self.config.decoder_vocab_size = embedding.num_embeddings
        return embedding

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
        use_cache: bool | None = None,
        **kwargs: CallOptions,
    ) -> Seq2SeqModelOutput:
        """Encode source sequences and decode target sequences.

        Args:
            input_ids: Source ids. *Shape:* (batch_size, source_len)
            attention_mask: 1 for real source tokens. *Shape:* (batch_size, source_len)
            decoder_input_ids: Target ids, by default the source ids shifted right. *Shape:* (batch_size, target_len)
            decoder_attention_mask: 1 for real target tokens, cached ones included. *Shape:* (batch_size, key_len)
            decoder_position_ids: Target positions. *Shape:* (batch_size, target_len)
            encoder_outputs: Outputs of an earlier call of the encoder, to skip it.
            past_key_values: Keys and values of earlier target positions and of the source.
            inputs_embeds: Instead of input_ids. *Shape:* (batch_size, source_len, hidden_size)
            decoder_inputs_embeds: Instead of decoder_input_ids. *Shape:* (batch_size, target_len, hidden_size)
            use_cache: Whether to return keys and values.
            kwargs: `cache` (`past_key_values` by the name of transformers 5.24), `output_attentions`,
                `output_hidden_states`, `return_dict`, and arguments of attention backends.

        Returns:
            `last_hidden_state`, *Shape:* (batch_size, target_len, hidden_size), the cache, the encoder's last hidden
            state, and the outputs that were requested.

        Raises:
            InputError: Without a decoder input.
        """
        past_key_values = cache_of_either_name(past_key_values, kwargs) if "cache" in kwargs else past_key_values
        for option in RECORDED:  # the decoder's configuration is a copy
            kwargs.setdefault(option, getattr(self.config, option, False))
        routed = {"is_token": kwargs.pop("is_token")} if "is_token" in kwargs else {}  # of the target
        attention_mask = self.encoder.padding_mask(attention_mask, input_ids)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids=input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, **kwargs
            )
        elif not isinstance(encoder_outputs, BaseModelOutput):
            encoder_outputs = BaseModelOutput(*encoder_outputs)
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self.decoder.transformer.decoder_inputs(input_ids, None, self.config)

        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            position_ids=decoder_position_ids,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=self.config.use_cache if use_cache is None else use_cache,
            **routed,
            **kwargs,
        )
        output = Seq2SeqModelOutput(
            decoder_outputs.last_hidden_state,
            getattr(decoder_outputs, CACHE_NAME),
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )
        for side, outputs in (("encoder", encoder_outputs), ("decoder", decoder_outputs)):
            if (router_logits := outputs.get("router_logits")) is not None:
                output[f"{side}_router_logits"] = router_logits
        return output


BODIES.update({"encoder": ZooEncoder, "decoder": ZooDecoder, "encoder-decoder": ZooEncoderDecoder})
