"""Between "d2l-style" and the Transformer chapter of Dive into Deep Learning: encoder, decoder, and both together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from zoo.models import ZooConfig, ZooEncoder, ZooForCausalLM, ZooForConditionalGeneration, ZooPreTrainedModel

from ..errors import ConversionError
from ..key_map import KeyMap
from .original import Layout, Original, count


class D2L(Original, name="d2l"):
    """EncoderDecoder is a ZooForConditionalGeneration, an encoder a ZooEncoder, a decoder a ZooForCausalLM.

    A decoder alone takes the encoder's output as `encoder_hidden_states`. Lengths become masks:
    `attention_mask = torch.arange(length) < valid_lens[:, None]`.
    """

    variant = "d2l-style"
    signatures = ("encoder.blks.block0.addnorm1.ln.weight", "blks.block0.addnorm1.ln.weight")
    unsaid: ClassVar[Mapping[str, str]] = {"num_attention_heads": "num_heads"}
    free = (
        *("decoder_vocab_size", "decoder_layers", "decoder_intermediate_size", "decoder_attention_heads"),
        *("encoder_attention_bias", "decoder_start_token_id", "dropout", "attention_dropout", "classifier_dropout"),
    )

    def layout(self, tensors: Mapping[str, Tensor]) -> Layout:
        if "encoder.embedding.weight" in tensors:
            below = self._stack(tensors, "decoder.", "attention1")
            settings = self._stack(tensors, "encoder.", "attention") | {
                "decoder_vocab_size": below["vocab_size"],
                "decoder_layers": below["num_hidden_layers"],
                "decoder_intermediate_size": below["intermediate_size"],
            }
            return Layout(ZooForConditionalGeneration, "seq2seq-lm", settings | {"is_encoder_decoder": True})
        if "dense.weight" in tensors:
            settings = self._stack(tensors, "", "attention1")
            settings |= {"is_encoder_decoder": False, "is_decoder": True, "add_cross_attention": True}
            return Layout(ZooForCausalLM, "seq2seq-lm", settings)
        settings = self._stack(tensors, "", "attention") | {"is_encoder_decoder": False}
        return Layout(ZooEncoder, "feature-extraction", settings)

    def _stack(self, tensors: Mapping[str, Tensor], prefix: str, attention: str) -> dict[str, Any]:
        block = f"{prefix}blks.block0."
        norm_shape = tuple(tensors[f"{block}addnorm1.ln.weight"].shape)
        if len(norm_shape) != 1:
            raise ConversionError(
                f"{block}addnorm1.ln.weight has {norm_shape}: norm_shape was several dimensions, the zoo "
                "normalises the last one only"
            )
        vocab_size, hidden_size = tensors[f"{prefix}embedding.weight"].shape
        settings = {
            "vocab_size": vocab_size,
            "hidden_size": hidden_size,
            "num_hidden_layers": count(tensors, rf"{prefix}blks\.block(\d+)\."),
            "intermediate_size": tensors[f"{block}ffn.dense1.weight"].shape[0],
        }
        if attention == "attention":  # only an encoder has use_bias
            settings["encoder_attention_bias"] = f"{block}{attention}.W_q.bias" in tensors
        return settings

    def ask(self, module: Any) -> dict[str, Any]:
        block = getattr(module, "encoder", module).blks[0]
        attention = block.attention if hasattr(block, "attention") else block.attention1
        rate = block.addnorm1.dropout.p
        return {"num_attention_heads": attention.num_heads, "dropout": rate, "attention_dropout": rate}

    def key_map(self, model_class: type[ZooPreTrainedModel], config: ZooConfig) -> KeyMap:
        if config.stack == "encoder-decoder":
            rows = stack(r"^encoder\.", "model.encoder.", ENCODER) + stack(r"^decoder\.", "model.decoder.", DECODER)
        else:
            rows = stack("^", "model.", DECODER) if config.is_decoder else stack("^", "", ENCODER)
        return KeyMap.of(*rows, owner=self.name)


ENCODER = {"attention": "self_attn"}
DECODER = {"attention1": "self_attn", "attention2": "cross_attn"}


def stack(theirs: str, ours: str, attentions: Mapping[str, str]) -> list[tuple[str, str]]:
    """The rows of a stack; each sublayer has a norm, in their order."""
    block, layer = rf"{theirs}blks\.block(\d+)", rf"{ours}layers.\1"
    norms = enumerate((*attentions.values(), "mlp"), start=1)
    head = [(rf"{theirs}dense\.(weight|bias)$", r"lm_head.\1")] if attentions is DECODER else []
    return [
        (rf"{theirs}embedding\.weight$", f"{ours}embed_tokens.weight"),
        *((rf"{block}\.addnorm{n}\.ln\.(weight|bias)$", rf"{layer}.{name}_residual.norm_out.\2") for n, name in norms),
        (rf"{block}\.ffn\.dense1\.(weight|bias)$", rf"{layer}.mlp.up_proj.\2"),
        (rf"{block}\.ffn\.dense2\.(weight|bias)$", rf"{layer}.mlp.down_proj.\2"),
        *(
            (rf"{block}\.{attention}\.W_{kind}\.(weight|bias)$", rf"{layer}.{name}.{kind}_proj.\2")
            for attention, name in attentions.items()
            for kind in "qkvo"
        ),
        *head,
    ]
