"""Between "odom-style" and the notebook after Frank Odom's "Transformers from Scratch in PyTorch": Transformer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor

from zoo.models import ZooConfig, ZooForConditionalGeneration, ZooPreTrainedModel

from ..key_map import KeyMap, Pair, pairs
from ..transforms import Transform
from .original import Layout, Original, count, join_aliases, one_of


class Odom(Original, name="odom", variant="odom-style"):
    """Transformer is a ZooForConditionalGeneration on `inputs_embeds` and `decoder_inputs_embeds`.

    Its logits are the values before the document's final softmax. All layers of a stack and all heads of an attention
    are one module there, listed under every layer's and head's key.
    """

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
            *pairs({"lm_head": "external_ff"}),
            owner=self.name,
        )


def stack(theirs: str, ours: str, attentions: Mapping[str, str], config: ZooConfig, depth: int) -> Iterator[Pair]:
    heads = range(config.num_attention_heads)
    groups = [range(depth)] if config.share_layers else [range(number, number + 1) for number in range(depth)]
    for target, layers in enumerate(groups):
        one = one_of(len(layers))
        merge = join_aliases(len(heads), len(layers))
        if config.has_quirk("heads-share-weights"):
            merge = one_of(len(heads) * len(layers))

        def of_layers(*names: str, layers: range = layers) -> tuple[str, ...]:
            return tuple(f"{theirs}.{number}.{name}" for name in names for number in layers)

        keys: dict[str, tuple[tuple[str, ...], Transform]] = {
            "mlp_residual.norm_out": (of_layers("ff_layer.norm"), one),
            "mlp.up_proj": (of_layers("ff_layer.sublayer.0"), one),
            "mlp.down_proj": (of_layers("ff_layer.sublayer.2"), one),
        }
        for attention, name in attentions.items():
            keys[f"{name}_residual.norm_out"] = of_layers(f"{attention}.norm"), one
            keys[f"{name}.o_proj"] = of_layers(f"{attention}.sublayer.linear_layer"), one
            for kind in "qkv":
                of_heads = (f"{attention}.sublayer.attention_heads.{head}.{kind}_linear_layer" for head in heads)
                keys[f"{name}.{kind}_proj"] = of_layers(*of_heads), merge
        yield from pairs(keys, f"{ours}.layers.{target}.")
