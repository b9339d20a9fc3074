"""Between "odom-style" and the notebook after Frank Odom's "Transformers from Scratch in PyTorch": Transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from zoo.models import ZooConfig, ZooForConditionalGeneration, ZooPreTrainedModel

from ..key_map import KeyMap
from .original import Layout, Original, Rows, count, join_aliases, one_of


class Odom(Original, name="odom"):
    """Transformer is a ZooForConditionalGeneration on `inputs_embeds` and `decoder_inputs_embeds`.

    Its logits are the values before the document's final softmax. All layers of a stack and all heads of an attention
    are one module there, listed under every layer's and head's key.
    """

    variant = "odom-style"
    signatures = ("external_ff.weight",)
    unsaid: ClassVar[Mapping[str, str]] = {}
    free = (
        *("head_dim", "num_attention_heads", "num_key_value_heads", "dropout", "classifier_dropout"),
        *("decoder_layers", "decoder_attention_heads", "decoder_intermediate_size", "decoder_vocab_size"),
        "decoder_start_token_id",
    )

    def layout(self, tensors: Mapping[str, Tensor]) -> Layout:
        attention = "encoders.0.attention_layer.sublayer"
        head_dim, hidden_size = tensors[f"{attention}.attention_heads.0.q_linear_layer.weight"].shape
        settings = {
            "hidden_size": hidden_size,
            "head_dim": head_dim,
            "num_attention_heads": count(
                tensors, r"encoders\.\d+\.attention_layer\.sublayer\.attention_heads\.(\d+)\."
            ),
            "num_hidden_layers": count(tensors, r"encoders\.(\d+)\."),
            "decoder_layers": count(tensors, r"decoders\.(\d+)\."),
            "intermediate_size": tensors["encoders.0.ff_layer.sublayer.0.weight"].shape[0],
        }
        return Layout(ZooForConditionalGeneration, "seq2seq-lm", settings)

    def ask(self, module: Any) -> dict[str, Any]:
        return {"dropout": module.encoders[0].ff_layer.dropout.p}

    def key_map(self, model_class: type[ZooPreTrainedModel], config: ZooConfig) -> KeyMap:
        return KeyMap.of(
            *stack("encoders", "model.encoder", {"attention_layer": "self_attn"}, config, config.num_hidden_layers),
            *stack(
                "decoders",
                "model.decoder",
                {"attention_layer_1": "self_attn", "attention_layer_2": "cross_attn"},
                config,
                config.decoder_layers,
            ),
            (r"^external_ff\.(weight|bias)$", r"lm_head.\1"),
            owner=self.name,
        )


def stack(theirs: str, ours: str, attentions: Mapping[str, str], config: ZooConfig, depth: int) -> Rows:
    rows: Rows = []
    heads = range(config.num_attention_heads)
    shared_heads = config.has_quirk("heads-share-weights")
    groups = [range(depth)] if config.share_layers else [range(number, number + 1) for number in range(depth)]
    for target, layers in enumerate(groups):
        layer = f"{ours}.layers.{target}"

        def add(key: str, name: str, layers: range = layers, layer: str = layer) -> None:
            left = tuple(rf"^{theirs}\.{number}\.{key}\.(weight|bias)$" for number in layers)
            rows.append((left, rf"{layer}.{name}.\1", one_of(len(left))))

        for attention, name in attentions.items():
            add(rf"{attention}\.norm", f"{name}_residual.norm_out")
            add(rf"{attention}\.sublayer\.linear_layer", f"{name}.o_proj")
            for kind in "qkv":
                left = tuple(
                    rf"^{theirs}\.{number}\.{attention}\.sublayer\.attention_heads\.{head}\.{kind}_linear_layer\.(weight|bias)$"
                    for head in heads
                    for number in layers
                )
                merge = one_of(len(left)) if shared_heads else join_aliases(len(heads), len(layers))
                rows.append((left, rf"{layer}.{name}.{kind}_proj.\1", merge))
        add(r"ff_layer\.norm", "mlp_residual.norm_out")
        add(r"ff_layer\.sublayer\.0", "mlp.up_proj")
        add(r"ff_layer\.sublayer\.2", "mlp.down_proj")
    return rows
