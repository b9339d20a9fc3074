"""Decoders named after a published model equal transformers' own class of it, given its weights.

The weights are carried over by hand, independently of the converters, so that an error in a variant and one in its
converter cannot cancel. Both models are in float64; classes that normalise in float32 are met to float32's precision.
"""

import re
from typing import Any

import pytest
import torch
from models.native import (
    EXACT,
    HEADS,
    LENGTH,
    SIZES,
    THROUGH_FLOAT32,
    State,
    Table,
    assert_same_logits,
    native_of,
    renamed,
    zoo_of,
)

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


@pytest.mark.parametrize(
    ("variant", "native", "settings", "norms"),
    [
        ("llama-style", "Llama", {"num_key_value_heads": 2}, PRE_NORMS),
        ("qk-norm", "Qwen3", {"num_key_value_heads": HEADS, "head_dim": 8, "tie_word_embeddings": False}, PRE_NORMS),
        ("olmo2-style", "Olmo2", {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, BRANCH_NORMS),
    ],
)
def test_a_rotary_decoder_equals_transformers_own(variant: str, native: str, settings: Any, norms: Table) -> None:
    theirs = native_of(f"{native}ForCausalLM", f"{native}Config", **SIZES, rms_norm_eps=1e-6, **settings)
    ours = zoo_of(variant, renamed(theirs.state_dict(), ROTARY_DECODER + norms))
    assert_same_logits(theirs, ours, THROUGH_FLOAT32)


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
