"""Between "d2l-style" and the Transformer chapter of Dive into Deep Learning: encoder, decoder, and both together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from zoo.models import ZooConfig, ZooEncoder, ZooForCausalLM, ZooForConditionalGeneration, ZooPreTrainedModel

from ..errors import ConversionError
from ..key_map import KeyMap, Pair, pairs
from ..native.common import mlp
from .original import Layout, Original, count


class D2L(Original, name="d2l", variant="d2l-style"):
    """EncoderDecoder is a ZooForConditionalGeneration, an encoder a ZooEncoder, a decoder a ZooForCausalLM.

    A decoder alone takes the encoder's output as `encoder_hidden_states`. Lengths become masks:
    `attention_mask = torch.arange(length) < valid_lens[:, None]`.
    """

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
            rows = [*stack("model.encoder.", "encoder.", ENCODER), *stack("model.decoder.", "decoder.", DECODER)]
        else:
            rows = stack("model.", "", DECODER) if config.is_decoder else stack("", "", ENCODER)
        return KeyMap.of(*rows, owner=self.name)


ENCODER = {"self_attn": "attention"}
DECODER = {"self_attn": "attention1", "cross_attn": "attention2"}


def stack(ours: str, theirs: str, attentions: Mapping[str, str]) -> list[Pair]:
    """The rows of a stack; each sublayer has a norm, in their order."""
    layer = mlp("ffn.dense1", "ffn.dense2")
    for sublayer, name in attentions.items():
        layer |= {f"{sublayer}.{p}_proj": f"{name}.W_{p}" for p in "qkvo"}
    for number, sublayer in enumerate((*attentions, "mlp"), start=1):
        layer[f"{sublayer}_residual.norm_out"] = f"addnorm{number}.ln"
    return [
        *pairs({"embed_tokens.weight": "embedding.weight"}, ours, theirs),
        *pairs(layer, f"{ours}layers.{{n}}.", f"{theirs}blks.block{{n}}."),
        *pairs({"lm_head": f"{theirs}dense"} if attentions is DECODER else {}),
    ]
