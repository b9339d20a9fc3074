"""Variants named after a published model equal transformers' own class of it, given its weights.

The weights are carried over by hand, independently of the converters, so that an error in a variant and one in its
converter cannot cancel. Both models are in float64; classes that normalise in float32 are met to float32's precision.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import transformers

import zoo
from zoo.testing import randomize

HEADS = 4
SIZES: dict[str, int] = {
    "vocab_size": 37,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "intermediate_size": 48,
    "max_position_embeddings": 24,
}
LENGTH = 9
EXACT = 1e-10
THROUGH_FLOAT32 = 2e-5

State = dict[str, torch.Tensor]
Table = list[tuple[str, str]]


def renamed(state: State, table: Table) -> State:
    """Rename every tensor by the one row that matches its name; an empty new name drops it."""
    translated: State = {}
    for name, tensor in state.items():
        rows = [(pattern, new) for pattern, new in table if re.fullmatch(pattern, name)]
        assert len(rows) == 1, f"{name} is matched by {len(rows)} rows"
        pattern, new = rows[0]
        if new:
            translated[re.sub(pattern, new, name)] = tensor
    return translated


def native_of(class_name: str, config_name: str, **settings: Any) -> Any:
    config = getattr(transformers, config_name)(**settings)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    native = getattr(transformers, class_name)(config).double().eval()
    fixed = {
        name: tensor.clone() for name, tensor in native.state_dict().items() if "Sinusoidal" in owner(native, name)
    }
    randomize(native).load_state_dict(fixed, strict=False)
    return native


def owner(model: torch.nn.Module, name: str) -> str:
    """The class name of the module that holds a tensor."""
    return type(model.get_submodule(name.rpartition(".")[0])).__name__


def zoo_of(name: str, state: State, **settings: Any) -> Any:
    model = zoo.build(name, dtype=torch.float64, attn_implementation="eager", **{**SIZES, **settings})
    model.load_state_dict(state)
    return model


def ids(seed: int = 0, length: int = LENGTH) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, SIZES["vocab_size"], (2, length), generator=generator)


MASK = torch.tensor([[1] * LENGTH, [1] * (LENGTH - 3) + [0] * 3])


@torch.no_grad()
def assert_same_logits(native: Any, ours: Any, tolerance: float, **inputs: torch.Tensor) -> None:
    """Compare the logits of real tokens, on a padded batch, and the number of parameters."""
    inputs = {"input_ids": ids(), "attention_mask": MASK, **inputs}
    expected, got = native(**inputs).logits, ours(**inputs).logits
    assert expected.std() > 0.05, "the oracle's logits are too small to tell anything"
    real = MASK.bool() if expected.shape[1] == LENGTH else torch.ones(expected.shape[:2], dtype=torch.bool)
    torch.testing.assert_close(got[real], expected[real], atol=tolerance, rtol=tolerance)


ROTARY_DECODER: Table = [
    (r"model\.embed_tokens\.weight", "model.embed_tokens.weight"),
    (r"model\.layers\.(\d+)\.self_attn\.(\w+)\.weight", r"model.layers.\1.self_attn.\2.weight"),
    (r"model\.layers\.(\d+)\.mlp\.(\w+)\.weight", r"model.layers.\1.mlp.\2.weight"),
    (r"model\.norm\.weight", "model.norm.weight"),
    (r"lm_head\.weight", "lm_head.weight"),
]
PRE_NORMS: Table = [
    (r"model\.layers\.(\d+)\.input_layernorm\.weight", r"model.layers.\1.self_attn_residual.norm_in.weight"),
    (r"model\.layers\.(\d+)\.post_attention_layernorm\.weight", r"model.layers.\1.mlp_residual.norm_in.weight"),
]
BRANCH_NORMS: Table = [
    (
        r"model\.layers\.(\d+)\.post_attention_layernorm\.weight",
        r"model.layers.\1.self_attn_residual.norm_branch.weight",
    ),
    (r"model\.layers\.(\d+)\.post_feedforward_layernorm\.weight", r"model.layers.\1.mlp_residual.norm_branch.weight"),
]


def test_llama_style_equals_llama() -> None:
    native = native_of("LlamaForCausalLM", "LlamaConfig", **SIZES, num_key_value_heads=2, rms_norm_eps=1e-6)
    ours = zoo_of("llama-style", renamed(native.state_dict(), ROTARY_DECODER + PRE_NORMS))
    assert_same_logits(native, ours, THROUGH_FLOAT32)


def test_qk_norm_equals_qwen3() -> None:
    sizes = {**SIZES, "num_key_value_heads": HEADS, "head_dim": 8, "rms_norm_eps": 1e-6}
    native = native_of("Qwen3ForCausalLM", "Qwen3Config", **sizes, tie_word_embeddings=False)
    ours = zoo_of("qk-norm", renamed(native.state_dict(), ROTARY_DECODER + PRE_NORMS))
    assert_same_logits(native, ours, THROUGH_FLOAT32)


def test_olmo2_style_equals_olmo2() -> None:
    rope = {"rope_type": "default", "rope_theta": 500000.0}
    native = native_of("Olmo2ForCausalLM", "Olmo2Config", **SIZES, rms_norm_eps=1e-6, rope_parameters=rope)
    ours = zoo_of("olmo2-style", renamed(native.state_dict(), ROTARY_DECODER + BRANCH_NORMS))
    assert_same_logits(native, ours, THROUGH_FLOAT32)


def test_gemma2_style_equals_gemma2() -> None:
    sizes = {**SIZES, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 4}
    caps = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
    native = native_of("Gemma2ForCausalLM", "Gemma2Config", **sizes, **caps, query_pre_attn_scalar=8)
    norms = [
        (r"model\.layers\.(\d+)\.input_layernorm\.weight", r"model.layers.\1.self_attn_residual.norm_in.weight"),
        (r"model\.layers\.(\d+)\.pre_feedforward_layernorm\.weight", r"model.layers.\1.mlp_residual.norm_in.weight"),
    ]
    state = renamed(native.state_dict(), ROTARY_DECODER + norms + BRANCH_NORMS)
    # Gemma keeps the distance of its norms' weights from one.
    ours = zoo_of("gemma2-style", {k: v + 1 if "norm" in k else v for k, v in state.items()}, **sizes, **caps)
    assert_same_logits(native, ours, THROUGH_FLOAT32)


def test_gptj_style_equals_gptj() -> None:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": HEADS, "n_inner": 48, "n_positions": 24, "rotary_dim": 4}
    native = native_of("GPTJForCausalLM", "GPTJConfig", vocab_size=37, **sizes)
    table = [
        (r"transformer\.wte\.weight", "model.embed_tokens.weight"),
        (r"transformer\.h\.(\d+)\.ln_1\.(\w+)", r"model.layers.\1.residual.norm_in.\2"),
        (r"transformer\.h\.(\d+)\.attn\.(q|k|v)_proj\.weight", r"model.layers.\1.self_attn.\2_proj.weight"),
        (r"transformer\.h\.(\d+)\.attn\.out_proj\.weight", r"model.layers.\1.self_attn.o_proj.weight"),
        (r"transformer\.h\.(\d+)\.mlp\.fc_in\.(\w+)", r"model.layers.\1.mlp.up_proj.\2"),
        (r"transformer\.h\.(\d+)\.mlp\.fc_out\.(\w+)", r"model.layers.\1.mlp.down_proj.\2"),
        (r"transformer\.ln_f\.(\w+)", r"model.norm.\1"),
        (r"lm_head\.(\w+)", r"lm_head.\1"),
    ]
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    ours = zoo_of("gptj-style", renamed(native.state_dict(), table), rope_parameters=rope)
    assert_same_logits(native, ours, 1e-6, position_ids=torch.arange(LENGTH).expand(2, -1))


def test_gpt2_style_equals_gpt2() -> None:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": HEADS, "n_inner": 48, "n_positions": 24}
    native = native_of("GPT2LMHeadModel", "GPT2Config", vocab_size=37, **sizes)
    state: State = {}
    for name, tensor in native.state_dict().items():
        # GPT-2's linear layers are stored as (in, out), and queries, keys and values as one.
        tensor = tensor.T if re.search(r"c_\w+\.weight$", name) else tensor
        if "c_attn" in name:
            parts = zip("qkv", tensor.chunk(3, dim=0), strict=True)
            state.update({name.replace("c_attn", f"{letter}_proj"): part for letter, part in parts})
        else:
            state[name] = tensor
    table = [
        (r"transformer\.wte\.weight", "model.embed_tokens.weight"),
        (r"transformer\.wpe\.weight", "model.position.weight"),
        (r"transformer\.h\.(\d+)\.ln_1\.(\w+)", r"model.layers.\1.self_attn_residual.norm_in.\2"),
        (r"transformer\.h\.(\d+)\.ln_2\.(\w+)", r"model.layers.\1.mlp_residual.norm_in.\2"),
        (r"transformer\.h\.(\d+)\.attn\.(q|k|v)_proj\.(\w+)", r"model.layers.\1.self_attn.\2_proj.\3"),
        (r"transformer\.h\.(\d+)\.attn\.c_proj\.(\w+)", r"model.layers.\1.self_attn.o_proj.\2"),
        (r"transformer\.h\.(\d+)\.mlp\.c_fc\.(\w+)", r"model.layers.\1.mlp.up_proj.\2"),
        (r"transformer\.h\.(\d+)\.mlp\.c_proj\.(\w+)", r"model.layers.\1.mlp.down_proj.\2"),
        (r"transformer\.ln_f\.(\w+)", r"model.norm.\1"),
        (r"lm_head\.weight", "lm_head.weight"),
    ]
    assert_same_logits(native, zoo_of("gpt2-style", renamed(state, table)), EXACT)


@pytest.mark.parametrize("heads", [4, 6], ids=["power-of-two", "six-heads"])
def test_alibi_decoder_equals_bloom(heads: int) -> None:
    native = native_of("BloomForCausalLM", "BloomConfig", vocab_size=37, hidden_size=48, n_layer=2, n_head=heads)
    state: State = {}
    for name, tensor in native.state_dict().items():
        if "query_key_value" in name:
            by_head = tensor.unflatten(0, (heads, 3, 48 // heads))
            for index, letter in enumerate("qkv"):
                state[name.replace("query_key_value", f"{letter}_proj")] = by_head[:, index].flatten(0, 1)
        else:
            state[name] = tensor
    table = [
        (r"transformer\.word_embeddings\.weight", "model.embed_tokens.weight"),
        (r"transformer\.word_embeddings_layernorm\.(\w+)", r"model.embedding_norm.\1"),
        (r"transformer\.h\.(\d+)\.input_layernorm\.(\w+)", r"model.layers.\1.self_attn_residual.norm_in.\2"),
        (r"transformer\.h\.(\d+)\.post_attention_layernorm\.(\w+)", r"model.layers.\1.mlp_residual.norm_in.\2"),
        (r"transformer\.h\.(\d+)\.self_attention\.(q|k|v)_proj\.(\w+)", r"model.layers.\1.self_attn.\2_proj.\3"),
        (r"transformer\.h\.(\d+)\.self_attention\.dense\.(\w+)", r"model.layers.\1.self_attn.o_proj.\2"),
        (r"transformer\.h\.(\d+)\.mlp\.dense_h_to_4h\.(\w+)", r"model.layers.\1.mlp.up_proj.\2"),
        (r"transformer\.h\.(\d+)\.mlp\.dense_4h_to_h\.(\w+)", r"model.layers.\1.mlp.down_proj.\2"),
        (r"transformer\.ln_f\.(\w+)", r"model.norm.\1"),
        (r"lm_head\.weight", "lm_head.weight"),
    ]
    sizes = {"hidden_size": 48, "num_attention_heads": heads, "intermediate_size": 192}
    settings = {"embedding_norm": True, "hidden_act": "gelu_pytorch_tanh"}
    ours = zoo_of("alibi-decoder", renamed(state, table), **sizes, **settings)
    assert_same_logits(native, ours, 1e-6)


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
