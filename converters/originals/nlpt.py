"""Between "nlpt-encoder" and chapter 3 of NLP with Transformers: TransformerEncoder and its classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from zoo.models import ZooConfig, ZooEncoder, ZooForSequenceClassification, ZooPreTrainedModel

from ..key_map import KeyMap
from ..transforms import join
from .original import Layout, Original, count


class Nlpt(Original, name="nlpt"):
    """TransformerEncoder is a ZooEncoder, TransformerForSequenceClassification a ZooForSequenceClassification."""

    variant = "nlpt-encoder"
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
        classifies = model_class is ZooForSequenceClassification
        theirs, ours = (r"^encoder\.", "model.") if classifies else ("^", "")
        layers, layer, heads = rf"{theirs}layers\.(\d+)", rf"{ours}layers.\1", config.num_attention_heads
        head = [(r"^classifier\.(weight|bias)$", r"classifier.\1")] if classifies else []
        return KeyMap.of(
            (rf"{theirs}embeddings\.token_embeddings\.weight$", f"{ours}embed_tokens.weight"),
            (rf"{theirs}embeddings\.position_embeddings\.weight$", f"{ours}position.weight"),
            (rf"{theirs}embeddings\.layer_norm\.(weight|bias)$", rf"{ours}embedding_norm.\1"),
            (rf"{layers}\.layer_norm_1\.(weight|bias)$", rf"{layer}.self_attn_residual.norm_in.\2"),
            (rf"{layers}\.layer_norm_2\.(weight|bias)$", rf"{layer}.mlp_residual.norm_in.\2"),
            *(
                (
                    tuple(rf"{layers}\.attention\.heads\.{number}\.{kind}\.(weight|bias)$" for number in range(heads)),
                    rf"{layer}.self_attn.{kind}_proj.\2",
                    join(heads),
                )
                for kind in "qkv"
            ),
            (rf"{layers}\.attention\.output_linear\.(weight|bias)$", rf"{layer}.self_attn.o_proj.\2"),
            (rf"{layers}\.feed_forward\.linear_1\.(weight|bias)$", rf"{layer}.mlp.up_proj.\2"),
            (rf"{layers}\.feed_forward\.linear_2\.(weight|bias)$", rf"{layer}.mlp.down_proj.\2"),
            *head,
            owner=self.name,
        )
