"""Attention parts beyond the usual one: compared with transformers' own, and under the whole suite of a variant."""

from typing import Any

import pytest
import torch
from models.formulas import THROUGH_FLOAT32
from native_models import LLAMA, batch, largest_difference, native_model, outputs

import zoo
from zoo.testing import randomize

LATENT: dict[str, Any] = {"kv_lora_rank": 12, "qk_nope_head_dim": 6, "v_head_dim": 10}


@pytest.mark.parametrize("query_rank", [0, 14], ids=["queries", "latent-queries"])
def test_latent_attention_reads_one_token_after_the_other_from_its_cache(query_rank: int) -> None:
    """DeepSeek's class, all of whose layers are dense, is compared with what is converted from it."""
    own = {**LATENT, "q_lora_rank": query_rank or None, "qk_rope_head_dim": 4, "num_key_value_heads": 4}
    own |= {"rms_norm_eps": 0.1}  # of all norms but those on latent vectors
    native = native_model("DeepseekV3", "ForCausalLM", {**LLAMA, **own, "first_k_dense_replace": 2})
    ours = zoo.convert(native)
    assert largest_difference(outputs(native), outputs(ours)) < THROUGH_FLOAT32
    ids = batch(native.config)["input_ids"][:1]
    with torch.no_grad():
        whole = ours(ids).logits
        cache = ours(ids[:, :1], use_cache=True).past_key_values
        for step in range(1, ids.shape[1]):
            logits = ours(ids[:, step : step + 1], past_key_values=cache).logits
            torch.testing.assert_close(logits[:, 0], whole[:, step], atol=1e-6, rtol=1e-6)
    kept = [tuple(state.shape[1:]) for state in (cache.layers[0].keys, cache.layers[0].values)]
    assert kept == [(1, ids.shape[1], 4), (1, ids.shape[1], 12)]


@pytest.mark.parametrize("name", ["ltg-bert-style", "gpt-bert-style"])
def test_disentangled_scores_have_any_scale(name: str) -> None:
    """Each of the three is linear in a query: half of it is as good as twice the divisor."""
    settings: dict[str, Any] = {"vocab_size": 37, "seed": 0, "dtype": torch.float64}
    usual = randomize(zoo.build(f"{name}@tiny", "masked-lm", **settings))
    root = usual.config.head_dim**0.5
    half = zoo.build(f"{name}@tiny:attention_scale={2 * root}", "masked-lm", **settings)
    half.load_state_dict(usual.state_dict())
    with torch.no_grad():
        for name, one in usual.named_parameters():
            if "q_proj" in name:
                one /= 2
    ids = torch.arange(3, 23).view(2, 10)
    torch.testing.assert_close(half(ids).logits, usual(ids).logits)
    widths = {width: zoo.config("gpt-bert-style@tiny:parametrization=mup", head_dim=width) for width in (16, 64)}
    assert {width: config.attention_scale for width, config in widths.items()} == {16: 2.0, 64: 8.0}


def test_deepnorm_scales_the_rows_that_make_values() -> None:
    model = zoo.build("pre-norm", "causal-lm", attention="latent", initializer="deepnorm", num_hidden_layers=2, seed=0)
    for layer in model.model.layers:
        expansion = layer.self_attn.kv_b_proj
        by_head = expansion.weight.unflatten(0, (expansion.heads, -1))
        keys, values = by_head[:, : expansion.key_width].std(), by_head[:, expansion.key_width :].std()
        torch.testing.assert_close(values / keys, torch.tensor((8 * 2) ** -0.25), atol=0.01, rtol=0.0)
