"""Between "ltg-bert-style", "gpt-bert-style" and the authors' checkpoints (ltgoslo/ltg-bert, ltgoslo/gpt-bert)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor

from zoo.models import ZooConfig, ZooForCausalLM, ZooForMaskedLM, ZooPreTrainedModel

from ..errors import NotConvertibleError
from ..key_map import KeyMap, Keys, pairs
from ..transforms import split
from .original import Layout, Original, count, one_of

ATTENTION: Keys = {("q_proj", "k_proj"): ("in_proj_qk", split(2)), "o_proj": "out_proj"}
FEED_FORWARD: Keys = {
    ("up_proj.weight", "gate_proj.weight"): ("1.weight", split(2)),
    "down_proj.weight": "4.weight",
}


class LtgBert(Original, name="ltg-bert", variant="ltg-bert-style"):
    """ltgoslo/ltg-bert: Bert of training/model.py without its pair classifier and buffers.

    With `quirks=()` it is that of babylm/train/model.py.
    """

    signatures = ("transformer.layers.0.attention.in_proj_qk.weight",)
    unsaid: ClassVar[Mapping[str, str]] = {"num_attention_heads": "num_attention_heads"}
    free = (
        *("head_dim", "num_key_value_heads", "relative_attention_num_buckets", "relative_attention_max_distance"),
        *("dropout", "attention_dropout", "classifier_dropout", "layer_norm_eps", "embedding_norm_eps"),
        "initializer_width",
    )
    optional_quirks = ("positions-in-other-rows",)
    attention = "transformer.layers.{n}.attention"
    feed_forward = "transformer.layers.{n}.mlp"

    def layout(self, tensors: Mapping[str, Tensor]) -> Layout:
        vocab_size, hidden_size = tensors["embedding.word_embedding.weight"].shape
        settings: dict[str, Any] = {
            "vocab_size": vocab_size,
            "hidden_size": hidden_size,
            "num_hidden_layers": count(tensors, self.attention.replace("{n}", r"(\d+)")),
            "intermediate_size": tensors[f"{self.feed_forward.format(n=0)}.mlp.4.weight"].shape[1],
            "relative_attention_num_buckets": (tensors["embedding.relative_embedding"].shape[0] + 1) // 2,
        }
        if (indices := f"{self.attention.format(n=0)}.position_indices") in tensors:
            settings["relative_attention_max_distance"] = tensors[indices].shape[0]
        return Layout(ZooForMaskedLM, "masked-lm", settings)

    def ask(self, module: Any) -> dict[str, Any]:
        attention = next(part for part in module.modules() if hasattr(part, "in_proj_qk"))
        return {
            "num_attention_heads": attention.num_heads,
            "attention_dropout": attention.dropout.p,
            "dropout": module.embedding.dropout.p,
            "layer_norm_eps": attention.pre_layer_norm.eps,
        }

    def plan_back(self, model_class: type[ZooPreTrainedModel], config: ZooConfig) -> KeyMap:
        if model_class not in (ZooForMaskedLM, ZooForCausalLM):
            raise NotConvertibleError(self.name, [f"{model_class.__name__} instead of a language model"])
        return super().plan_back(model_class, config)

    def key_map(self, model_class: type[ZooPreTrainedModel], config: ZooConfig) -> KeyMap:
        """Queries and keys are one projection there, and the two halves of a gated feed-forward. Arguments as there."""
        embeddings = ("embedding.word_embedding.weight", "classifier.nonlinearity.5.weight")
        return KeyMap.of(
            (embeddings, "model.embed_tokens.weight", one_of(2)),
            ("embedding.relative_embedding", "model.position.weight"),
            ("embedding.relative_layer_norm.{p}", "model.position.norm_{p}"),
            ("classifier.nonlinearity.1.{p}", "transform.dense.{p}"),
            ("classifier.nonlinearity.5.bias", "lm_head.bias"),
            *pairs(self.keys_of_attention(), "model.layers.{n}.self_attn.", f"{self.attention}."),
            *pairs(FEED_FORWARD, "model.layers.{n}.mlp.", f"{self.feed_forward}.mlp."),
            *self.mixtures(config),
            ignored=(f"{self.attention}.position_indices",),
            owner=self.name,
        )

    def keys_of_attention(self) -> Keys:
        return {**ATTENTION, "v_proj": "in_proj_v", "o_norm": "post_layer_norm"}

    def mixtures(self, config: ZooConfig) -> Iterator[tuple[str, str]]:
        """The rows of weights of earlier outputs, which one of the two architectures has."""
        yield from ()


class GptBert(LtgBert, name="gpt-bert", variant="gpt-bert-style"):
    """ltgoslo/gpt-bert: Bert of pretraining/model_extra.py, masked, which saves weights of a causal one as well."""

    signatures = ("transformer.attention_layers.0.in_proj_vg.weight",)
    attention = "transformer.attention_layers.{n}"
    feed_forward = "transformer.mlp_layers.{n}"

    def keys_of_attention(self) -> Keys:
        """Values and gates are one projection there."""
        return {**ATTENTION, ("v_proj", "gate_proj"): ("in_proj_vg", split(2))}

    def mixtures(self, config: ZooConfig) -> Iterator[tuple[str, str]]:
        """They are counted through there."""
        for layer in range(config.num_hidden_layers):
            for place, name in enumerate(("self_attn_residual", "mlp_residual"), start=2 * layer):
                yield f"transformer.dwa_modules.alphas.{place}", f"model.layers.{layer}.{name}.mix.weight"
