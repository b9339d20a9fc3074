"""Between "vanilla" and the notebook "Passo a passo de Transformadores": Transformer and EncoderClassifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from zoo.models import ZooConfig, ZooForConditionalGeneration, ZooForSequenceClassification, ZooPreTrainedModel

from ..key_map import KeyMap
from .original import Layout, Original, count


class Vanilla(Original, name="vanilla"):
    """Transformer is a ZooForConditionalGeneration, EncoderClassifier a ZooForSequenceClassification."""

    variant = "vanilla"
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
            return KeyMap.of(
                *stack(r"^encoder", "model"), (r"^linear\.(weight|bias)$", r"classifier.\1"), owner=self.name
            )
        reuses_norm = config.has_quirk("feed-forward-reuses-cross-norm")
        rows = [
            *stack(r"^encoder", "model.encoder"),
            *stack(r"^decoder", "model.decoder", second="mlp" if reuses_norm else "cross_attn"),
            (r"^decoder\.fc\.(weight|bias)$", r"lm_head.\1"),
        ]
        dead = {}
        block, layer = r"^decoder\.blocks\.(\d+)", r"model.decoder.layers.\1"
        for theirs, ours in ATTENTION.items():
            joint = rf"{block}\.joint_attention\.{theirs}\.(weight|bias)$"
            if not config.has_quirk("cross-attention-reuses-self"):
                rows.append((joint, rf"{layer}.cross_attn.{ours}.\2"))
            elif config.keep_dead:
                rows.append((joint, rf"{layer}.dead.{ours}.\2"))
            else:
                dead[joint] = rf"decoder.blocks.\1.attention.{theirs}.\2"
        third = rf"{block}\.norm_3\.(weight|bias)$"
        if not reuses_norm:
            rows.append((third, rf"{layer}.mlp_residual.norm_out.\2"))
        elif config.keep_dead:
            rows.append((third, rf"{layer}.dead.norm.\2"))
        else:
            dead[third] = r"decoder.blocks.\1.norm_2.\2"
        return KeyMap.of(*rows, dead=dead, owner=self.name)


ATTENTION = {"queries": "q_proj", "keys": "k_proj", "values": "v_proj", "proj": "o_proj"}


def stack(theirs: str, ours: str, second: str = "mlp") -> list[tuple[str, str]]:
    """The rows that encoder and decoder have in common; the second norm is that of one of the sublayers."""
    block, layer = rf"{theirs}\.blocks\.(\d+)", rf"{ours}.layers.\1"
    rows = [
        (rf"{theirs}\.tok_emb\.weight$", f"{ours}.embed_tokens.weight"),
        (rf"{theirs}\.pos_emb\.weight$", f"{ours}.position.weight"),
        (rf"{block}\.norm_1\.(weight|bias)$", rf"{layer}.self_attn_residual.norm_out.\2"),
        (rf"{block}\.norm_2\.(weight|bias)$", rf"{layer}.{second}_residual.norm_out.\2"),
        (rf"{block}\.mlp\.0\.(weight|bias)$", rf"{layer}.mlp.up_proj.\2"),
        (rf"{block}\.mlp\.3\.(weight|bias)$", rf"{layer}.mlp.down_proj.\2"),
    ]
    projections = ((rf"{block}\.attention\.{name}", proj) for name, proj in ATTENTION.items())
    return rows + [(rf"{name}\.(weight|bias)$", rf"{layer}.self_attn.{proj}.\2") for name, proj in projections]
