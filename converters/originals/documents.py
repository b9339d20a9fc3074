"""Between variants and four documents' own code: "vanilla", "d2l-style", "nlpt-encoder" and "odom-style"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor

from zoo.models import (
    ZooConfig,
    ZooEncoder,
    ZooForCausalLM,
    ZooForConditionalGeneration,
    ZooForSequenceClassification,
    ZooPreTrainedModel,
)

from ..errors import ConversionError
from ..key_map import KeyMap, Keys, Pair, pairs
from ..native.common import mlp, norms, without
from ..transforms import Transform, join
from .original import Layout, Original, count, join_aliases, one_of


def stack(ours: str, theirs: str, tables: Keys, layers: str, layer: Keys) -> list[Pair]:
    """The rows of a stack: what is before its layers, and what is in them."""
    return [*pairs(tables, ours, theirs), *pairs(layer, f"{ours}layers.{{n}}.", f"{theirs}{layers}.")]


ATTENTION = {"q_proj": "queries", "k_proj": "keys", "v_proj": "values", "o_proj": "proj"}
RESIDUAL = "_residual.norm_out"
NORM_2 = f"mlp{RESIDUAL}"
VANILLA_TABLES = {"embed_tokens.weight": "tok_emb.weight", "position.weight": "pos_emb.weight"}
VANILLA_LAYER: Keys = {
    **{f"self_attn.{ours}": f"attention.{theirs}" for ours, theirs in ATTENTION.items()},
    **mlp("mlp.0", "mlp.3"),
    **norms("norm_1", "norm_2", "norm_out"),
}


class Vanilla(Original, name="vanilla", variant="vanilla"):
    """The notebook "Passo a passo de Transformadores".

    Transformer is a ZooForConditionalGeneration, EncoderClassifier a ZooForSequenceClassification.
    """

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
            rows = stack("model.", "encoder.", VANILLA_TABLES, "blocks.{n}", VANILLA_LAYER)
            return KeyMap.of(*rows, *pairs({"classifier": "linear"}), owner=self.name)
        reuses_self = config.has_quirk("cross-attention-reuses-self")
        reuses_norm = config.has_quirk("feed-forward-reuses-cross-norm")
        decoder = {**without(VANILLA_LAYER, NORM_2), ("mlp" if reuses_norm else "cross_attn") + RESIDUAL: "norm_2"}
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
            *stack("model.encoder.", "encoder.", VANILLA_TABLES, "blocks.{n}", VANILLA_LAYER),
            *stack("model.decoder.", "decoder.", VANILLA_TABLES, "blocks.{n}", decoder),
            *pairs({"lm_head": "decoder.fc"}),
            dead=dead,
            owner=self.name,
        )


class D2L(Original, name="d2l", variant="d2l-style"):
    """The Transformer chapter of Dive into Deep Learning.

    EncoderDecoder is a ZooForConditionalGeneration, an encoder a ZooEncoder, a decoder a ZooForCausalLM, which takes
    the encoder's output as `encoder_hidden_states`. Lengths become masks:
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
        encoder, decoder = {"self_attn": "attention"}, {"self_attn": "attention1", "cross_attn": "attention2"}
        if config.stack == "encoder-decoder":
            stacks = {"encoder.": ("model.encoder.", encoder), "decoder.": ("model.decoder.", decoder)}
        else:
            stacks = {"": ("model.", decoder) if config.is_decoder else ("", encoder)}
        rows: list[Pair] = []
        for theirs, (ours, attentions) in stacks.items():
            layer = mlp("ffn.dense1", "ffn.dense2")
            for sublayer, name in attentions.items():
                layer |= {f"{sublayer}.{p}_proj": f"{name}.W_{p}" for p in "qkvo"}
            for number, sublayer in enumerate((*attentions, "mlp"), start=1):  # each sublayer has a norm
                layer[f"{sublayer}{RESIDUAL}"] = f"addnorm{number}.ln"
            rows += stack(ours, theirs, {"embed_tokens.weight": "embedding.weight"}, "blks.block{n}", layer)
            rows += pairs({"lm_head": f"{theirs}dense"} if attentions is decoder else {})
        return KeyMap.of(*rows, owner=self.name)


class Nlpt(Original, name="nlpt", variant="nlpt-encoder"):
    """Chapter 3 of NLP with Transformers.

    TransformerEncoder is a ZooEncoder, TransformerForSequenceClassification a ZooForSequenceClassification.
    """

    signatures = ("embeddings.token_embeddings.weight", "encoder.embeddings.token_embeddings.weight")
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
        of_heads = {p: tuple(f"attention.heads.{head}.{p}" for head in heads) for p in "qkv"}
        layer = {
            **norms("layer_norm_1", "layer_norm_2"),
            **{f"self_attn.{p}_proj": (names, join(len(heads))) for p, names in of_heads.items()},
            "self_attn.o_proj": "attention.output_linear",
            **mlp("feed_forward.linear_1", "feed_forward.linear_2"),
        }
        tables = {"embed_tokens": "token_embeddings", "position": "position_embeddings"}
        embeddings = {f"{ours}.weight": f"embeddings.{theirs}.weight" for ours, theirs in tables.items()}
        embeddings["embedding_norm"] = "embeddings.layer_norm"
        classifies = model_class is ZooForSequenceClassification
        rows = stack(*(("model.", "encoder.") if classifies else ("", "")), embeddings, "layers.{n}", layer)
        return KeyMap.of(*rows, *pairs({"classifier": "classifier"} if classifies else {}), owner=self.name)


class Odom(Original, name="odom", variant="odom-style"):
    """The notebook after Frank Odom's "Transformers from Scratch in PyTorch".

    Transformer is a ZooForConditionalGeneration on `inputs_embeds` and `decoder_inputs_embeds`. Its logits are the
    values before the document's final softmax. All layers of a stack and all heads of an attention are one module
    there, listed under every layer's and head's key.
    """

    signatures = ("external_ff.weight",)
    free = (
        *("head_dim", "num_attention_heads", "num_key_value_heads", "dropout", "classifier_dropout"),
        *("decoder_layers", "decoder_attention_heads", "decoder_intermediate_size", "decoder_vocab_size"),
        "decoder_start_token_id",
    )

    def layout(self, tensors: Mapping[str, Tensor]) -> Layout:
        heads = "encoders.0.attention_layer.sublayer.attention_heads"
        head_dim, hidden_size = tensors[f"{heads}.0.q_linear_layer.weight"].shape
        settings = {
            "hidden_size": hidden_size,
            "head_dim": head_dim,
            "num_attention_heads": count(tensors, rf"{heads}\.(\d+)\."),
            "num_hidden_layers": count(tensors, r"encoders\.(\d+)\."),
            "decoder_layers": count(tensors, r"decoders\.(\d+)\."),
            "intermediate_size": tensors["encoders.0.ff_layer.sublayer.0.weight"].shape[0],
        }
        return Layout(ZooForConditionalGeneration, "seq2seq-lm", settings)

    def ask(self, module: Any) -> dict[str, Any]:
        return {"dropout": module.encoders[0].ff_layer.dropout.p}

    def key_map(self, model_class: type[ZooPreTrainedModel], config: ZooConfig) -> KeyMap:
        crossing = {"attention_layer_1": "self_attn", "attention_layer_2": "cross_attn"}
        rows = [
            *odom_stack("encoder", {"attention_layer": "self_attn"}, config, config.num_hidden_layers),
            *odom_stack("decoder", crossing, config, config.decoder_layers),
        ]
        return KeyMap.of(*rows, *pairs({"lm_head": "external_ff"}), owner=self.name)


def odom_stack(name: str, attentions: Mapping[str, str], config: ZooConfig, depth: int) -> Iterator[Pair]:
    heads = range(config.num_attention_heads)
    groups = [range(depth)] if config.share_layers else [range(number, number + 1) for number in range(depth)]
    for target, layers in enumerate(groups):
        one = one_of(len(layers))
        merge = join_aliases(len(heads), len(layers))
        if config.has_quirk("heads-share-weights"):
            merge = one_of(len(heads) * len(layers))

        def of_layers(*modules: str, layers: range = layers) -> tuple[str, ...]:
            return tuple(f"{name}s.{number}.{module}" for module in modules for number in layers)

        keys: dict[str, tuple[tuple[str, ...], Transform]] = {
            NORM_2: (of_layers("ff_layer.norm"), one),
            "mlp.up_proj": (of_layers("ff_layer.sublayer.0"), one),
            "mlp.down_proj": (of_layers("ff_layer.sublayer.2"), one),
        }
        for attention, ours in attentions.items():
            keys[f"{ours}{RESIDUAL}"] = of_layers(f"{attention}.norm"), one
            keys[f"{ours}.o_proj"] = of_layers(f"{attention}.sublayer.linear_layer"), one
            for kind in "qkv":
                of_heads = (f"{attention}.sublayer.attention_heads.{head}.{kind}_linear_layer" for head in heads)
                keys[f"{ours}.{kind}_proj"] = of_layers(*of_heads), merge
        yield from pairs(keys, f"model.{name}.layers.{target}.")
