"""Between "nlpt-encoder" and chapter 3 of NLP with Transformers: TransformerEncoder and its classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from zoo.models import ZooConfig, ZooEncoder, ZooForSequenceClassification, ZooPreTrainedModel

from ..key_map import KeyMap, pairs
from ..native.common import mlp, norms
from ..transforms import join
from .original import Layout, Original, count


class Nlpt(Original, name="nlpt", variant="nlpt-encoder"):
    """TransformerEncoder is a ZooEncoder, TransformerForSequenceClassification a ZooForSequenceClassification."""

    signatures = ("embeddings.token_embeddings.weight", "encoder.embeddings.token_embeddings.weight")
    unsaid: ClassVar[Mapping[str, str]] = {}
    free = ("num_attention_heads", "num_labels", "dropout", "classifier_dropout")

    def layout(self, tensors: Mapping[str, Tensor]) -> Layout:
        prefix = "encoder." if self.signatures[1] in tensors else ""
        vocab_size, hidden_size = tensors[f"{prefix}embeddings.token_embeddings.weight"].shape
        settings: dict[str, Any] = {
            "vocab_size": vocab_size,
            "hidden_size": hidden_size,
            "max_position_embeddings": tensors[f"{prefix}embeddings.position_embeddings.weight"].shape[0],
            "num_hidden_layers": count(tensors, rf"{prefix}layers\.(\d+)\."),
            "num_attention_heads": count(tensors, rf"{prefix}layers\.\d+\.attention\.heads\.(\d+)\."),
            "intermediate_size": tensors[f"{prefix}layers.0.feed_forward.linear_1.weight"].shape[0],
        }
        if not prefix:
            return Layout(ZooEncoder, "feature-extraction", settings)
        settings["num_labels"] = tensors["classifier.weight"].shape[0]
        return Layout(ZooForSequenceClassification, "sequence-classification", settings)

    def ask(self, module: Any) -> dict[str, Any]:
        return {"dropout": getattr(module, "encoder", module).embeddings.dropout.p}

    def key_map(self, model_class: type[ZooPreTrainedModel], config: ZooConfig) -> KeyMap:
        """Heads of their own become one projection."""
        heads = range(config.num_attention_heads)
        layer = {
            **norms("layer_norm_1", "layer_norm_2"),
            **{
                f"self_attn.{p}_proj": (tuple(f"attention.heads.{head}.{p}" for head in heads), join(len(heads)))
                for p in "qkv"
            },
            "self_attn.o_proj": "attention.output_linear",
            **mlp("feed_forward.linear_1", "feed_forward.linear_2"),
        }
        classifies = model_class is ZooForSequenceClassification
        ours, theirs = ("model.", "encoder.") if classifies else ("", "")
        return KeyMap.of(
            *pairs(EMBEDDINGS, ours, f"{theirs}embeddings."),
            *pairs(layer, f"{ours}layers.{{n}}.", f"{theirs}layers.{{n}}."),
            *pairs({"classifier": "classifier"} if classifies else {}),
            owner=self.name,
        )


EMBEDDINGS = {
    "embed_tokens.weight": "token_embeddings.weight",
    "position.weight": "position_embeddings.weight",
    "embedding_norm": "layer_norm",
}
