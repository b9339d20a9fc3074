"""Encoders and encoder-decoders named after a published model equal transformers' own class, given its weights.

The weights are carried over by hand, independently of the converters, so that an error in a variant and one in its
converter cannot cancel. Both models are in float64; classes that normalise in float32 are met to float32's precision.
"""

from typing import Any

import pytest
import torch
from models.native import (
    EXACT,
    HEADS,
    LENGTH,
    MASK,
    SIZES,
    THROUGH_FLOAT32,
    Table,
    assert_same_logits,
    ids,
    native_of,
    renamed,
    zoo_of,
)
from transformers import DynamicCache

BERT_LAYERS: Table = [
    (r"\w+\.embeddings\.word_embeddings\.weight", "model.embed_tokens.weight"),
    (r"\w+\.embeddings\.position_embeddings\.weight", "model.position.weight"),
    (r"\w+\.embeddings\.token_type_embeddings\.weight", ""),
    (r"\w+\.embeddings\.LayerNorm\.(\w+)", r"model.embedding_norm.\1"),
    (r"\w+\.encoder\.layer\.(\d+)\.attention\.self\.query\.(\w+)", r"model.layers.\1.self_attn.q_proj.\2"),
    (r"\w+\.encoder\.layer\.(\d+)\.attention\.self\.key\.(\w+)", r"model.layers.\1.self_attn.k_proj.\2"),
    (r"\w+\.encoder\.layer\.(\d+)\.attention\.self\.value\.(\w+)", r"model.layers.\1.self_attn.v_proj.\2"),
    (r"\w+\.encoder\.layer\.(\d+)\.attention\.output\.dense\.(\w+)", r"model.layers.\1.self_attn.o_proj.\2"),
    (r"\w+\.encoder\.layer\.(\d+)\.intermediate\.dense\.(\w+)", r"model.layers.\1.mlp.up_proj.\2"),
    (r"\w+\.encoder\.layer\.(\d+)\.output\.dense\.(\w+)", r"model.layers.\1.mlp.down_proj.\2"),
]


def test_bert_style_equals_bert() -> None:
    native = native_of("BertForMaskedLM", "BertConfig", **SIZES)
    table = [
        *BERT_LAYERS,
        (
            r"bert\.encoder\.layer\.(\d+)\.attention\.output\.LayerNorm\.(\w+)",
            r"model.layers.\1.self_attn_residual.norm_out.\2",
        ),
        (r"bert\.encoder\.layer\.(\d+)\.output\.LayerNorm\.(\w+)", r"model.layers.\1.mlp_residual.norm_out.\2"),
        (r"cls\.predictions\.transform\.dense\.(\w+)", r"transform.dense.\1"),
        (r"cls\.predictions\.transform\.LayerNorm\.(\w+)", r"transform.norm.\1"),
        (r"cls\.predictions\.decoder\.(\w+)", r"lm_head.\1"),
        (r"cls\.predictions\.bias", ""),
    ]
    state = renamed(native.state_dict(), table)
    # Every token is of type zero, whose vector is added as a position's is.
    state["model.position.weight"] = (
        state["model.position.weight"] + native.bert.embeddings.token_type_embeddings.weight[0]
    )
    assert_same_logits(native, zoo_of("bert-style", state), EXACT)


def test_bert_style_classifier_equals_bert() -> None:
    native = native_of("BertForSequenceClassification", "BertConfig", **SIZES, num_labels=3)
    table = [
        *BERT_LAYERS,
        (
            r"bert\.encoder\.layer\.(\d+)\.attention\.output\.LayerNorm\.(\w+)",
            r"model.layers.\1.self_attn_residual.norm_out.\2",
        ),
        (r"bert\.encoder\.layer\.(\d+)\.output\.LayerNorm\.(\w+)", r"model.layers.\1.mlp_residual.norm_out.\2"),
        (r"bert\.pooler\.dense\.(\w+)", r"pooler.dense.\1"),
        (r"classifier\.(\w+)", r"classifier.\1"),
    ]
    state = renamed(native.state_dict(), table)
    state["model.position.weight"] = (
        state["model.position.weight"] + native.bert.embeddings.token_type_embeddings.weight[0]
    )
    ours = zoo_of("bert-style", state, task="sequence-classification", num_labels=3)
    with torch.no_grad():
        expected, got = (model(ids(), attention_mask=MASK).logits for model in (native, ours))
        torch.testing.assert_close(got, expected, atol=EXACT, rtol=EXACT)
        # BERT's own classifier takes no prefix, its body does.
        prefix = [
            tuple(torch.randn(2, *ids().shape[:1], HEADS, 3, 8, dtype=torch.float64)) for _ in native.bert.encoder.layer
        ]
        settings = {"attention_mask": torch.nn.functional.pad(MASK, (3, 0), value=1)}
        body = native.bert(ids(), **settings, past_key_values=DynamicCache(prefix))
        got = ours(ids(), **settings, past_key_values=DynamicCache(prefix)).logits
    torch.testing.assert_close(got, native.classifier(body.pooler_output), atol=EXACT, rtol=EXACT)


def test_roberta_prelayernorm_style_equals_roberta_prelayernorm() -> None:
    settings = {**SIZES, "layer_norm_eps": 1e-12, "pad_token_id": 1, "type_vocab_size": 1}
    native = native_of("RobertaPreLayerNormForMaskedLM", "RobertaPreLayerNormConfig", **settings)
    table = [
        *BERT_LAYERS,
        (r"\w+\.encoder\.layer\.(\d+)\.attention\.LayerNorm\.(\w+)", r"model.layers.\1.self_attn_residual.norm_in.\2"),
        (r"\w+\.encoder\.layer\.(\d+)\.intermediate\.LayerNorm\.(\w+)", r"model.layers.\1.mlp_residual.norm_in.\2"),
        (r"roberta_prelayernorm\.LayerNorm\.(\w+)", r"model.norm.\1"),
        (r"lm_head\.dense\.(\w+)", r"transform.dense.\1"),
        (r"lm_head\.layer_norm\.(\w+)", r"transform.norm.\1"),
        (r"lm_head\.decoder\.(\w+)", r"lm_head.\1"),
        (r"lm_head\.bias", ""),
    ]
    state = renamed(native.state_dict(), table)
    # Positions begin behind the padding id.
    types = native.roberta_prelayernorm.embeddings.token_type_embeddings.weight[0]
    state["model.position.weight"] = state["model.position.weight"][2:] + types
    ours = zoo_of("roberta-prelayernorm-style", state, max_position_embeddings=22)
    assert_same_logits(native, ours, EXACT)


def bart_table(norm_slot: str) -> Table:
    layer = r"model\.(encoder|decoder)\.layers\.(\d+)\."
    ours = r"model.\1.layers.\2."
    return [
        (r"model\.shared\.weight", ""),
        (r"model\.(encoder|decoder)\.embed_tokens\.weight", r"model.\1.embed_tokens.weight"),
        (r"model\.(encoder|decoder)\.embed_positions\.weight", r"model.\1.position.weight"),
        (r"model\.(encoder|decoder)\.layernorm_embedding\.(\w+)", r"model.\1.embedding_norm.\2"),
        (r"model\.(encoder|decoder)\.layer_norm\.(\w+)", r"model.\1.norm.\2"),
        (layer + r"self_attn\.(q|k|v)_proj\.(\w+)", ours + r"self_attn.\3_proj.\4"),
        (layer + r"self_attn\.out_proj\.(\w+)", ours + r"self_attn.o_proj.\3"),
        (layer + r"encoder_attn\.(q|k|v)_proj\.(\w+)", ours + r"cross_attn.\3_proj.\4"),
        (layer + r"encoder_attn\.out_proj\.(\w+)", ours + r"cross_attn.o_proj.\3"),
        (layer + r"self_attn_layer_norm\.(\w+)", ours + rf"self_attn_residual.{norm_slot}.\3"),
        (layer + r"encoder_attn_layer_norm\.(\w+)", ours + rf"cross_attn_residual.{norm_slot}.\3"),
        (layer + r"final_layer_norm\.(\w+)", ours + rf"mlp_residual.{norm_slot}.\3"),
        (layer + r"fc1\.(\w+)", ours + r"mlp.up_proj.\3"),
        (layer + r"fc2\.(\w+)", ours + r"mlp.down_proj.\3"),
        (r"lm_head\.weight", "lm_head.weight"),
        (r"final_logits_bias", "lm_head.bias"),
    ]


BART_SIZES = {
    "vocab_size": 37,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 40,
    "max_position_embeddings": 24,
}
OUR_BART_SIZES = {"decoder_layers": 3, "decoder_intermediate_size": 40}
TIED = {"tie_word_embeddings": True, "share_encoder_decoder_embeddings": True, "lm_head_bias": True}


@pytest.mark.parametrize(
    ("variant", "family", "norm_slot", "act", "settings"),
    [
        ("marian-style", "Marian", "norm_out", "swish", {}),
        ("pegasus-style", "Pegasus", "norm_in", "relu", {}),
        ("post-norm", "Bart", "norm_out", "gelu", TIED),
        ("pre-norm", "MBart", "norm_in", "gelu", {**TIED, "embedding_norm": True}),
    ],
)
def test_encoder_decoders_equal_barts_family(
    variant: str, family: str, norm_slot: str, act: str, settings: dict[str, Any]
) -> None:
    class_name = "MarianMTModel" if family == "Marian" else f"{family}ForConditionalGeneration"
    scaled = family in ("Marian", "Pegasus")
    more = {"pad_token_id": 0, "scale_embedding": scaled, "activation_function": act}
    native = native_of(class_name, f"{family}Config", **BART_SIZES, **more)
    torch.manual_seed(1)
    native.final_logits_bias.normal_()
    state = {name: tensor for name, tensor in native.state_dict().items() if not (scaled and "embed_positions" in name)}
    state = renamed(state, bart_table(norm_slot))
    state["lm_head.bias"] = state["lm_head.bias"][0]
    for stack in ("encoder", "decoder"):
        if not scaled:
            # The first two rows of Bart's tables stand for no position.
            state[f"model.{stack}.position.weight"] = state[f"model.{stack}.position.weight"][2:]
    ours = zoo_of(variant, state, task="seq2seq-lm", **OUR_BART_SIZES, **settings)
    assert_same_logits(native, ours, 1e-6 if scaled else EXACT, decoder_input_ids=ids(1, LENGTH - 2))


def test_t5_style_equals_t5() -> None:
    sizes = {"vocab_size": 37, "d_model": 32, "d_kv": 6, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 3}
    buckets = {"relative_attention_num_buckets": 6, "relative_attention_max_distance": 7}
    more = {"num_heads": HEADS, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    native = native_of("T5ForConditionalGeneration", "T5Config", **sizes, **buckets, **more)
    block = r"(encoder|decoder)\.block\.(\d+)\.layer\."
    ours = r"model.\1.layers.\2."
    table = [
        (r"shared\.weight", ""),
        (r"(encoder|decoder)\.embed_tokens\.weight", r"model.\1.embed_tokens.weight"),
        (block + r"0\.SelfAttention\.(q|k|v|o)\.weight", ours + r"self_attn.\3_proj.weight"),
        (block + r"0\.SelfAttention\.relative_attention_bias\.weight", r"model.\1.position.weight"),
        (block + r"0\.layer_norm\.weight", ours + r"self_attn_residual.norm_in.weight"),
        (block + r"1\.EncDecAttention\.(q|k|v|o)\.weight", ours + r"cross_attn.\3_proj.weight"),
        (r"(decoder)\.block\.(\d+)\.layer\.1\.layer_norm\.weight", ours + r"cross_attn_residual.norm_in.weight"),
        (r"(encoder)\.block\.(\d+)\.layer\.1\.layer_norm\.weight", ours + r"mlp_residual.norm_in.weight"),
        (r"(decoder)\.block\.(\d+)\.layer\.2\.layer_norm\.weight", ours + r"mlp_residual.norm_in.weight"),
        (block + r"[12]\.DenseReluDense\.wi_0\.weight", ours + r"mlp.gate_proj.weight"),
        (block + r"[12]\.DenseReluDense\.wi_1\.weight", ours + r"mlp.up_proj.weight"),
        (block + r"[12]\.DenseReluDense\.wo\.weight", ours + r"mlp.down_proj.weight"),
        (r"(encoder|decoder)\.final_layer_norm\.weight", r"model.\1.norm.weight"),
        (r"lm_head\.weight", "lm_head.weight"),
    ]
    state = renamed(native.state_dict(), table)
    ours_model = zoo_of("t5-style", state, decoder_layers=3, head_dim=6, **buckets)
    assert_same_logits(native, ours_model, THROUGH_FLOAT32, decoder_input_ids=ids(1, 12))
