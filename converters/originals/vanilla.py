"""Between "vanilla" and the notebook "Passo a passo de Transformadores": Transformer and EncoderClassifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from zoo.models import ZooConfig, ZooForConditionalGeneration, ZooForSequenceClassification, ZooPreTrainedModel

from ..key_map import KeyMap, Keys, Pair, pairs
from ..native.common import mlp, norms, without
from .original import Layout, Original, count


class Vanilla(Original, name="vanilla", variant="vanilla"):
    """Transformer is a ZooForConditionalGeneration, EncoderClassifier a ZooForSequenceClassification."""

    signatures = ("encoder.tok_emb.weight",)
    unsaid: ClassVar[Mapping[str, str]] = {"num_attention_heads": "n_heads", "pad_token_id": "src_pad_idx or pad_idx"}
    unsaid_of_task: ClassVar[Mapping[str, Mapping[str, str]]] = {"seq2seq-lm": {"decoder_pad_token_id": "trg_pad_idx"}}
    free = (
        *("decoder_vocab_size", "decoder_layers", "num_labels", "decoder_pad_token_id", "decoder_start_token_id"),
        *("dropout", "attention_dropout", "activation_dropout", "classifier_dropout"),
    )

    def layout(self, tensors: Mapping[str, Tensor]) -> Layout:
        vocab_size, hidden_size = tensors["encoder.tok_emb.weight"].shape
        settings: dict[str, Any] = {
            "vocab_size": vocab_size,
            "hidden_size": hidden_size,
            "max_position_embeddings": tensors["encoder.pos_emb.weight"].shape[0],
            "num_hidden_layers": count(tensors, r"encoder\.blocks\.(\d+)\."),
            "intermediate_size": tensors["encoder.blocks.0.mlp.0.weight"].shape[0],
        }
        if not any(key.startswith("decoder.") for key in tensors):
            settings["num_labels"] = tensors["linear.weight"].shape[0]
            return Layout(ZooForSequenceClassification, "sequence-classification", settings)
        settings["decoder_vocab_size"] = tensors["decoder.tok_emb.weight"].shape[0]
        settings["decoder_layers"] = count(tensors, r"decoder\.blocks\.(\d+)\.")
        return Layout(ZooForConditionalGeneration, "seq2seq-lm", settings)

    def ask(self, module: Any) -> dict[str, Any]:
        rate = module.encoder.dropout.p
        settings = {"num_attention_heads": module.encoder.blocks[0].attention.n_heads, "dropout": rate}
        settings |= {"attention_dropout": rate, "activation_dropout": rate}
        names = {"src_pad_idx": "pad_token_id", "pad_idx": "pad_token_id", "trg_pad_idx": "decoder_pad_token_id"}
        return settings | {ours: getattr(module, theirs) for theirs, ours in names.items() if hasattr(module, theirs)}

    def key_map(self, model_class: type[ZooPreTrainedModel], config: ZooConfig) -> KeyMap:
        if config.stack == "encoder":
            head = pairs({"classifier": "linear"})
            return KeyMap.of(*stack("model.", "encoder.", LAYER), *head, owner=self.name)
        reuses_self = config.has_quirk("cross-attention-reuses-self")
        reuses_norm = config.has_quirk("feed-forward-reuses-cross-norm")
        decoder = {**without(LAYER, NORM_2), ("mlp" if reuses_norm else "cross_attn") + RESIDUAL: "norm_2"}
        # What a quirk leaves unread: its key, where it is read, where it is kept, and what has the same shape.
        others = [
            (f"joint_attention.{theirs}", f"cross_attn.{ours}", f"dead.{ours}", f"attention.{theirs}", reuses_self)
            for ours, theirs in ATTENTION.items()
        ]
        others.append(("norm_3", NORM_2, "dead.norm", "norm_2", reuses_norm))
        dead = {}
        for theirs, ours, kept, twin, unread in others:
            if unread and not config.keep_dead:
                dead[f"decoder.blocks.{{n}}.{theirs}.{{p}}"] = f"decoder.blocks.{{n}}.{twin}.{{p}}"
            else:
                decoder[kept if unread else ours] = theirs
        return KeyMap.of(
            *stack("model.encoder.", "encoder.", LAYER),
            *stack("model.decoder.", "decoder.", decoder),
            *pairs({"lm_head": "decoder.fc"}),
            dead=dead,
            owner=self.name,
        )


ATTENTION = {"q_proj": "queries", "k_proj": "keys", "v_proj": "values", "o_proj": "proj"}
RESIDUAL = "_residual.norm_out"
NORM_2 = f"mlp{RESIDUAL}"
LAYER: Keys = {
    **{f"self_attn.{ours}": f"attention.{theirs}" for ours, theirs in ATTENTION.items()},
    **mlp("mlp.0", "mlp.3"),
    **norms("norm_1", "norm_2", "norm_out"),
}


def stack(ours: str, theirs: str, layer: Keys) -> list[Pair]:
    """The rows of a stack."""
    tables = {"embed_tokens.weight": "tok_emb.weight", "position.weight": "pos_emb.weight"}
    return [*pairs(tables, ours, theirs), *pairs(layer, f"{ours}layers.{{n}}.", f"{theirs}blocks.{{n}}.")]
