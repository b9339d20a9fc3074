"""Between "explicando" and the tutorial "Explicando Transformers": Transformer, from text to text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from zoo.base.errors import InputError, enumerate_names
from zoo.models import ZooConfig, ZooForConditionalGeneration, ZooPreTrainedModel

from ..errors import ConversionError
from ..key_map import KeyMap, pairs
from ..native.common import mlp
from .original import Layout, Original, count, one_of

SPECIAL = ("<pad>", "<bos>", "<eos>")


class Explicando(Original, name="explicando", variant="explicando"):
    """Transformer is a ZooForConditionalGeneration; [`character_tokenizer`][] and [`translate`][] add the text."""

    signatures = ("input_processor.tokenizer.embedding.weight",)
    unsaid: ClassVar[Mapping[str, str]] = {
        "num_attention_heads": "n_heads of the encoder",
        "decoder_attention_heads": "n_heads of the decoder",
        "input_characters": "in_vocab, in the order of its ids; None if you need no text",
        "output_characters": "out_vocab, in the order of its ids; None if you need no text",
    }
    free = (
        *("decoder_layers", "decoder_intermediate_size", "decoder_vocab_size", "sinusoidal_theta"),
        "decoder_start_token_id",
    )

    def layout(self, tensors: Mapping[str, Tensor]) -> Layout:
        vocab_size, hidden_size = tensors["tokenizer.embedding.weight"].shape
        settings = {
            "vocab_size": vocab_size,
            "hidden_size": hidden_size,
            "decoder_vocab_size": tensors["output_processor.linear.weight"].shape[0],
            "num_hidden_layers": count(tensors, r"encoder\.layers\.(\d+)\."),
            "decoder_layers": count(tensors, r"decoder\.layers\.(\d+)\."),
            "intermediate_size": tensors["encoder.layers.0.ff.0.weight"].shape[0],
            "decoder_intermediate_size": tensors["decoder.layers.0.transformer_layer.ff.0.weight"].shape[0],
        }
        return Layout(ZooForConditionalGeneration, "seq2seq-lm", settings)

    def plan(self, checkpoint: Any, **hints: Any) -> Any:
        """Plan the way in, with the vocabularies as strings."""
        for field in ("input_characters", "output_characters"):
            if hints.get(field) is not None:
                hints[field] = "".join(dict.fromkeys(hints[field]))
        plan = super().plan(checkpoint, **hints)
        for field, size in (
            ("input_characters", plan.config.vocab_size - len(SPECIAL)),
            ("output_characters", plan.config.decoder_vocab_size),
        ):
            characters = getattr(plan.config, field)
            if characters is not None and len(characters) != size:
                raise ConversionError(f"{field} has {len(characters)} characters, but this checkpoint has {size}")
        return plan

    def ask(self, module: Any) -> dict[str, Any]:
        ids = module.tokenizer.char_ids
        return {
            "num_attention_heads": module.encoder.layers[0].mha.n_heads,
            "decoder_attention_heads": module.decoder.layers[0].mha.n_heads,
            "sinusoidal_theta": float(module.positional_encoder.theta),
            "input_characters": "".join(sorted(set(ids) - set(SPECIAL), key=ids.__getitem__)),
            "output_characters": "".join(char for _, char in sorted(module.output_processor.id_chars.items())),
        }

    def key_map(self, model_class: type[ZooPreTrainedModel], config: ZooConfig) -> KeyMap:
        """The embedding under two keys, both stacks, and the output layer."""
        if not config.has_quirk("self-attention-stands-bare"):
            raise ConversionError("self-attention-stands-bare cannot be left out: the checkpoint has no norm for it")
        tables = ("tokenizer.embedding.weight", "input_processor.tokenizer.embedding.weight")
        encoder, decoder = "encoder.layers.{n}.", "decoder.layers.{n}."
        return KeyMap.of(
            (tables, "model.encoder.embed_tokens.weight", one_of(2)),
            *pairs(layer("self_attn"), f"model.{encoder}", encoder),
            *pairs(layer("cross_attn"), f"model.{decoder}", f"{decoder}transformer_layer."),
            *pairs(projections("self_attn"), f"model.{decoder}", decoder),
            *pairs({"lm_head": "output_processor.linear"}),
            owner=self.name,
        )


def layer(attention: str) -> dict[str, str]:
    return {
        **projections(attention),
        f"{attention}_residual.norm_out": "mha_layernorm",
        **mlp("ff.0", "ff.2"),
        "mlp_residual.norm_out": "ff_layernorm",
    }


def projections(attention: str) -> dict[str, str]:
    names = {"q": "query", "k": "key", "v": "value", "o": "output"}
    return {f"{attention}.{p}_proj.weight": f"mha.{name}_projection.weight" for p, name in names.items()}


def character_tokenizer(characters: Sequence[str]) -> PreTrainedTokenizerFast:
    """Make the document's tokenizer: `<pad>` 0, `<bos>` 1, `<eos>` 2, then a character an id; no unknown characters."""
    vocab = {token: number for number, token in enumerate((*SPECIAL, *dict.fromkeys(characters)))}
    tokenizer = Tokenizer(models.WordLevel(vocab))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", 1), ("<eos>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )


@torch.no_grad()
def translate(model: ZooForConditionalGeneration, texts: Sequence[str]) -> list[str]:
    """Turn texts into texts as the document does: the likeliest output character at every input position."""
    known, written = model.config.input_characters, model.config.output_characters
    if known is None or written is None:
        raise InputError(
            "this model does not know its characters; convert it with input_characters and output_characters"
        )
    if not texts:
        raise InputError("no texts were given; give at least one")
    if unknown := sorted(set("".join(texts)) - set(known)):
        raise InputError(f"characters that the model does not know: {enumerate_names(map(repr, unknown))}")
    batch = character_tokenizer(known)(list(texts), padding=True, return_tensors="pt").to(model.device)
    best = model(**batch).logits.argmax(dim=-1).tolist()
    return ["".join(written[number] for number in row[: len(text) + 2]) for text, row in zip(texts, best, strict=True)]
