"""Between "ltg-bert-style", "gpt-bert-style" and the authors' checkpoints (ltgoslo/ltg-bert, ltgoslo/gpt-bert)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor

from zoo.models import ZooConfig, ZooForCausalLM, ZooForMaskedLM, ZooPreTrainedModel

from ..errors import NotConvertibleError
from ..key_map import KeyMap
from ..transforms import split
from .original import Layout, Original, Rows, count, one_of


class LtgBert(Original, name="ltg-bert"):
    """Bert of training/model.py without its pair classifier and buffers; with `quirks=()` of babylm/train/model.py."""

    variant = "ltg-bert-style"
    signatures = ("transformer.layers.0.attention.in_proj_qk.weight",)
    unsaid: ClassVar[Mapping[str, str]] = {"num_attention_heads": "num_attention_heads"}
    free = (
        *("head_dim", "num_key_value_heads", "relative_attention_num_buckets", "relative_attention_max_distance"),
        *("dropout", "attention_dropout", "classifier_dropout", "layer_norm_eps", "embedding_norm_eps"),
        "initializer_width",
    )
    optional_quirks = ("positions-in-other-rows",)
    attention = r"transformer\.layers\.{}\.attention"
    feed_forward = r"transformer\.layers\.{}\.mlp"

    def layout(self, tensors: Mapping[str, Tensor]) -> Layout:
        vocab_size, hidden_size = tensors["embedding.word_embedding.weight"].shape
        first = self.attention.replace("\\", "").format(0)
        settings: dict[str, Any] = {
            "vocab_size": vocab_size,
            "hidden_size": hidden_size,
            "num_hidden_layers": count(tensors, self.attention.format(r"(\d+)")),
            "intermediate_size": tensors[self.feed_forward.replace("\\", "").format(0) + ".mlp.4.weight"].shape[1],
            "relative_attention_num_buckets": (tensors["embedding.relative_embedding"].shape[0] + 1) // 2,
        }
        if (indices := f"{first}.position_indices") in tensors:
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
        attention = self.attention.format(r"(\d+)")
        return KeyMap.of(
            (
                (r"^embedding\.word_embedding\.weight$", r"^classifier\.nonlinearity\.5\.weight$"),
                "model.embed_tokens.weight",
                one_of(2),
            ),
            (r"^embedding\.relative_embedding$", "model.position.weight"),
            (r"^embedding\.relative_layer_norm\.(weight|bias)$", r"model.position.norm_\1"),
            (r"^classifier\.nonlinearity\.1\.(weight|bias)$", r"transform.dense.\1"),
            (r"^classifier\.nonlinearity\.5\.bias$", "lm_head.bias"),
            *self.layer_rows(config),
            ignored=(rf"^{attention}\.position_indices$",),
            owner=self.name,
        )

    def layer_rows(self, config: ZooConfig) -> Rows:
        theirs, ours = self.attention.format(r"(\d+)"), r"model.layers.\1.self_attn"
        kinds, mlp = "(weight|bias)", self.feed_forward.format(r"(\d+)")
        inner = r"model.layers.\1.mlp"
        return [
            (rf"^{theirs}\.in_proj_qk\.{kinds}$", (rf"{ours}.q_proj.\2", rf"{ours}.k_proj.\2"), split(2)),
            (rf"^{theirs}\.out_proj\.{kinds}$", rf"{ours}.o_proj.\2"),
            (rf"^{mlp}\.mlp\.1\.weight$", (f"{inner}.up_proj.weight", f"{inner}.gate_proj.weight"), split(2)),
            (rf"^{mlp}\.mlp\.4\.weight$", f"{inner}.down_proj.weight"),
            *self.own_rows(theirs, ours, config),
        ]

    def own_rows(self, theirs: str, ours: str, config: ZooConfig) -> Iterator[Any]:
        """The rows in which the two architectures differ."""
        yield rf"^{theirs}\.in_proj_v\.(weight|bias)$", rf"{ours}.v_proj.\2"
        yield rf"^{theirs}\.post_layer_norm\.(weight|bias)$", rf"{ours}.o_norm.\2"


class GptBert(LtgBert, name="gpt-bert"):
    """Bert of pretraining/model_extra.py, as a masked model, which saves weights of a causal one as well."""

    variant = "gpt-bert-style"
    signatures = ("transformer.attention_layers.0.in_proj_vg.weight",)
    attention = r"transformer\.attention_layers\.{}"
    feed_forward = r"transformer\.mlp_layers\.{}"

    def own_rows(self, theirs: str, ours: str, config: ZooConfig) -> Iterator[Any]:
        """Values and gates are one projection there, and the mixtures are counted through."""
        kinds = "(weight|bias)"
        yield rf"^{theirs}\.in_proj_vg\.{kinds}$", (rf"{ours}.v_proj.\2", rf"{ours}.gate_proj.\2"), split(2)
        for layer in range(config.num_hidden_layers):
            for place, name in enumerate(("self_attn_residual", "mlp_residual")):
                yield (
                    rf"^transformer\.dwa_modules\.alphas\.{2 * layer + place}$",
                    f"model.layers.{layer}.{name}.mix.weight",
                )
