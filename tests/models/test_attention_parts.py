"""Attention parts beyond the usual one: against formulas in plain loops, and under the whole suite of a variant."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from models.formulas import HEAD, HEADS, LENGTH, WIDTH, affine, close, config, random, randomized
from models.native import SIZES, THROUGH_FLOAT32, assert_same_logits, ids, native_of, renamed, zoo_of
from models.test_native_decoders import PRE_NORMS
from torch import Tensor

import zoo
from zoo.base.errors import ConfigError, UnsupportedBackendError
from zoo.converters.errors import ExportError
from zoo.models.attention import build_attention
from zoo.testing import Case, cases

PARTS = ("differential", "exclusive", "gated", "latent", "sinks")
FOUR: dict[str, Any] = {"num_attention_heads": 4, "hidden_size": 16, "head_dim": 4}


def causal_mask(length: int = LENGTH) -> Tensor:
    return torch.full((1, 1, length, length), -1e9, dtype=torch.float64).triu(1)


def split(linear: Any, x: Tensor, width: int) -> list[list[list[float]]]:
    """Heads of a projection: [head][position][feature]."""
    rows = torch.tensor([affine(linear, row) for row in x.tolist()], dtype=torch.float64)
    return rows.unflatten(-1, (-1, width)).transpose(0, 1).tolist()


def weights_of(query: list[float], keys: list[list[float]], sink: float | None = None) -> list[float]:
    """A softmax over the keys, and over a sink whose weight is left out."""
    scores = [sum(a * b for a, b in zip(query, key, strict=True)) / math.sqrt(len(query)) for key in keys]
    total = sum(math.exp(score) for score in scores) + (0.0 if sink is None else math.exp(sink))
    return [math.exp(score) / total for score in scores]


def mixed(weights: list[float], values: list[list[float]]) -> list[float]:
    return [sum(w * v for w, v in zip(weights, column, strict=True)) for column in zip(*values, strict=True)]


def heads_by_loops(attention: Any, x: Tensor, sinks: list[float] | None = None) -> Tensor:
    """What every head of causal attention gathers. *Shape:* (LENGTH, heads, head_dim)"""
    width = attention.head_dim
    query, key, value = (split(getattr(attention, f"{p}_proj"), x, width) for p in "qkv")
    groups = len(query) // len(key)
    return torch.tensor(
        [
            [
                mixed(
                    weights_of(query[h][i], key[h // groups][: i + 1], None if sinks is None else sinks[h]),
                    value[h // groups][: i + 1],
                )
                for h in range(len(query))
            ]
            for i in range(len(x))
        ],
        dtype=torch.float64,
    )


def outputs(attention: Any, heads: Tensor) -> Tensor:
    return torch.tensor([affine(attention.o_proj, row) for row in heads.flatten(1).tolist()], dtype=torch.float64)


def test_gates_are_sigmoids_of_the_query_token() -> None:
    attention, x = randomized(build_attention(config(attention="gated"), 0, is_causal=True)), random(LENGTH, WIDTH)
    gates = torch.tensor([affine(attention.gate_proj, row) for row in x.tolist()], dtype=torch.float64)
    heads = heads_by_loops(attention, x) / (1 + torch.exp(-gates)).unflatten(-1, (HEADS, HEAD))
    close(attention(x[None], causal_mask())[0][0], outputs(attention, heads), 1e-10)


def test_exclusive_attention_is_orthogonal_to_the_own_value() -> None:
    settings = {**FOUR, "num_key_value_heads": 2, "attention": "exclusive"}
    attention, x = randomized(build_attention(config(**settings), 0, is_causal=True)), random(LENGTH, 16)
    value = torch.tensor(split(attention.v_proj, x, 4), dtype=torch.float64)
    heads = heads_by_loops(attention, x)
    for i in range(LENGTH):
        for h in range(4):
            own = value[h // 2, i]
            heads[i, h] = heads[i, h] - (heads[i, h] @ own) / (own @ own) * own
            assert abs(float(heads[i, h] @ own)) < 1e-10
    close(attention(x[None], causal_mask())[0][0], outputs(attention, heads), 1e-10)


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_a_sink_takes_part_in_the_softmax_and_gives_nothing(backend: str) -> None:
    attention, x = randomized(build_attention(config(attention="sinks"), 0, is_causal=True)), random(LENGTH, WIDTH)
    heads = heads_by_loops(attention, x, attention.sinks.tolist())
    mask = causal_mask() if backend == "eager" else None
    out, weights = attention(x[None], mask, attn_implementation=backend)
    close(out[0], outputs(attention, heads), 1e-10)
    if weights is not None:
        assert weights.shape == (1, HEADS, LENGTH, LENGTH)
        assert (weights.sum(-1) < 1).all()


@pytest.mark.parametrize("layer", [0, 3])
def test_differential_heads_subtract_in_pairs(layer: int) -> None:
    attention = randomized(build_attention(config(**FOUR, attention="differential"), layer, is_causal=True))
    x = random(LENGTH, 16)
    query, key, value = (split(getattr(attention, f"{p}_proj"), x, 4) for p in "qkv")
    q1, k1, q2, k2 = (getattr(attention, f"lambda_{name}").tolist() for name in ("q1", "k1", "q2", "k2"))
    start = 0.8 - 0.6 * math.exp(-0.3 * layer)
    factor = math.exp(sum(map(math.prod, zip(q1, k1, strict=True)))) + start
    factor -= math.exp(sum(map(math.prod, zip(q2, k2, strict=True))))
    heads = []
    for i in range(LENGTH):
        row = []
        for pair in (0, 1):
            values = [value[pair][j] + value[pair + 2][j] for j in range(i + 1)]
            first, second = (mixed(weights_of(query[h][i], key[h][: i + 1]), values) for h in (pair, pair + 2))
            difference = [a - factor * b for a, b in zip(first, second, strict=True)]
            root = math.sqrt(sum(d * d for d in difference) / 8 + 1e-5)
            row.append([(1 - start) * d / root for d in difference])
        heads.append(row)
    close(attention(x[None], causal_mask())[0][0], outputs(attention, torch.tensor(heads, dtype=torch.float64)), 1e-10)


LATENT: dict[str, Any] = {"kv_lora_rank": 12, "qk_nope_head_dim": 6, "v_head_dim": 10}


@pytest.mark.parametrize("query_rank", [0, 14], ids=["queries", "latent-queries"])
def test_latent_attention_equals_deepseek(query_rank: int) -> None:
    """transformers' own class, all of whose layers are dense; then one token after the other from the cache."""
    own = {**LATENT, "q_lora_rank": query_rank or None, "qk_rope_head_dim": 4, "num_key_value_heads": 4}
    own |= {"rms_norm_eps": 0.1}  # of all norms but those on latent vectors
    native = native_of("DeepseekV3ForCausalLM", "DeepseekV3Config", **SIZES, **own, first_k_dense_replace=2)
    query = {"q_a_proj": "q_a_proj", "q_a_norm": "q_a_layernorm", "q_proj": "q_b_proj"} if query_rank else {}
    names = {"q_proj": "q_proj", **query, "kv_a_proj": "kv_a_proj_with_mqa", "kv_a_norm": "kv_a_layernorm"}
    table = [
        *(
            (rf"model\.layers\.(\d+)\.self_attn\.{old}\.weight", rf"model.layers.\1.self_attn.{new}.weight")
            for new, old in {**names, "kv_b_proj": "kv_b_proj", "o_proj": "o_proj"}.items()
        ),
        (r"model\.layers\.(\d+)\.mlp\.(\w+)\.weight", r"model.layers.\1.mlp.\2.weight"),
        (r"model\.(embed_tokens|norm)\.weight", r"model.\1.weight"),
        (r"lm_head\.weight", "lm_head.weight"),
        *PRE_NORMS,
    ]
    settings = {**LATENT, "q_lora_rank": query_rank, "head_dim": 4, "num_key_value_heads": 4}
    settings |= {"layer_norm_eps": 0.1, "latent_norm_eps": 1e-6}
    ours = zoo_of(
        "llama-style:attention=latent,position=rotary-interleaved", renamed(native.state_dict(), table), **settings
    )
    assert_same_logits(native, ours, THROUGH_FLOAT32)
    with torch.no_grad():
        whole = ours(ids()).logits
        cache = ours(ids()[:, :1], use_cache=True).past_key_values
        for step in range(1, LENGTH):
            logits = ours(ids()[:, step : step + 1], past_key_values=cache).logits
            torch.testing.assert_close(logits[:, 0], whole[:, step], atol=1e-6, rtol=1e-6)
    kept = [tuple(state.shape[1:]) for state in (cache.layers[0].keys, cache.layers[0].values)]
    assert kept == [(1, LENGTH, 4), (1, LENGTH, 12)]


def test_latent_attention_is_no_onnx_graph(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="caches no keys and values of every layer"):
        zoo.export(zoo.build("llama-style@tiny:attention=latent,vocab_size=20"), tmp_path / "onnx", target="onnx")


def test_latent_attention_refuses_what_it_has_no_keys_for() -> None:
    with pytest.raises(ConfigError, match="cross attention"):
        zoo.build("post-norm@tiny:attention=latent", "seq2seq-lm")
    with pytest.raises(ConfigError, match="qk_norm"):
        zoo.build("llama-style@tiny:attention=latent,qk_norm=head")
    with pytest.raises(ConfigError, match="widths must be at least 1"):
        zoo.build("llama-style@tiny:attention=latent,v_head_dim=0")
    with pytest.raises(ConfigError, match="latent_norm_eps=0.0 was given; it must be positive, or None"):
        zoo.build("llama-style@tiny:attention=latent,latent_norm_eps=0.0")


@pytest.mark.parametrize("settings", [{"num_key_value_heads": 1}, {"attention_dropout": 0.1}])
def test_differential_attention_refuses_what_has_no_pairs(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="heads must be pairs"):
        zoo.build("pre-norm@tiny:attention=differential", "causal-lm", **settings)


def test_sinks_refuse_backends_by_name() -> None:
    with pytest.raises(UnsupportedBackendError, match="valid: sdpa, eager"):
        zoo.build("pre-norm@tiny:attention=sinks", "causal-lm", attn_implementation="flex_attention")


HAD = {(str(zoo.config(name).attention), "causal-lm") for name in zoo.list_variants(task="causal-lm")}
"""Parts that a variant has which is put through all of this each time."""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=str(case), marks=pytest.mark.nightly if (part, case.task) in HAD else ())
        for part in PARTS
        for case in cases([f"llama-style:attention={part}", f"post-norm:attention={part}"])
        if (case.variant[:5], case.task) in (("llama", "causal-lm"), ("post-", "seq2seq-lm"))
        and (part, case.task) != ("latent", "seq2seq-lm")
    ],
)
def test_every_attention(case: Case) -> None:
    case()


def test_deepnorm_scales_the_rows_that_make_values() -> None:
    model = zoo.build("pre-norm", "causal-lm", attention="latent", initializer="deepnorm", num_hidden_layers=2, seed=0)
    for layer in model.model.layers:
        expansion = layer.self_attn.kv_b_proj
        by_head = expansion.weight.unflatten(0, (expansion.heads, -1))
        keys, values = by_head[:, : expansion.key_width].std(), by_head[:, expansion.key_width :].std()
        torch.testing.assert_close(values / keys, torch.tensor((8 * 2) ** -0.25), atol=0.01, rtol=0.0)


def test_exclusive_attention_is_not_divided_by_its_length() -> None:
    with pytest.raises(
        ConfigError, match="attention='exclusive' was given with norm='unit', norm_placement='sandwich'"
    ):
        zoo.config("pre-norm", "causal-lm", attention="exclusive", norm="unit", norm_placement="sandwich")
