"""Attention against formulas written out in plain loops, in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from models.formulas import HEAD, HEADS, LENGTH, WIDTH, affine, close, config, random, randomized
from torch import Tensor

import zoo
from zoo.models.attention import build_attention


def attention_by_loops(attention: Any, x: Tensor, visible: Any, *, scale: float, cap: float | None = None) -> Tensor:
    """softmax(q k / scale) v head by head, query by query, key by key."""
    groups = attention.q_proj.out_features // attention.k_proj.out_features
    query, key, value = (
        torch.tensor([affine(proj, row) for row in x.tolist()], dtype=torch.float64)
        for proj in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    rows = []
    for i in range(len(x)):
        mixed: list[float] = []
        for head in range(HEADS):
            mine = slice(head * HEAD, (head + 1) * HEAD)
            theirs = slice(head // groups * HEAD, (head // groups + 1) * HEAD)
            keys = [j for j in range(len(x)) if visible(i, j)]
            scores = [float(query[i, mine] @ key[j, theirs]) / scale for j in keys]
            if cap is not None:
                scores = [cap * math.tanh(score / cap) for score in scores]
            exponentials = [math.exp(score) for score in scores]
            weights = [exponential / sum(exponentials) for exponential in exponentials]
            mixed += [
                sum(w * float(value[j, c]) for w, j in zip(weights, keys, strict=True))
                for c in range(*theirs.indices(WIDTH))
            ]
        rows.append(affine(attention.o_proj, mixed))
    return torch.tensor(rows, dtype=torch.float64)


def additive(visible: Any) -> Tensor:
    allowed = torch.tensor([[visible(i, j) for j in range(LENGTH)] for i in range(LENGTH)])
    return torch.zeros(1, 1, LENGTH, LENGTH, dtype=torch.float64).masked_fill(~allowed, torch.finfo(torch.float64).min)


@pytest.mark.parametrize(
    ("settings", "scale", "cap"),
    [
        ({}, math.sqrt(HEAD), None),
        ({"num_key_value_heads": 1}, math.sqrt(HEAD), None),
        ({"attention_scale": "hidden-size"}, math.sqrt(WIDTH), None),
        ({"attention_scale": "none"}, 1.0, None),
        ({"attention_scale": 2.5}, 2.5, None),
        ({"attn_logit_softcapping": 0.8}, math.sqrt(HEAD), 0.8),
        ({"attention_bias": False}, math.sqrt(HEAD), None),
        ({"attention_bias": False, "attention_out_bias": True}, math.sqrt(HEAD), None),
    ],
)
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
def test_attention_is_its_formula(settings: dict[str, Any], scale: float, cap: float | None, causal: bool) -> None:
    def visible(i: int, j: int) -> bool:
        return j <= i or not causal

    attention, x = randomized(build_attention(config(**settings), 0, is_causal=causal)), random(LENGTH, WIDTH)
    out, _ = attention(x[None], additive(visible))
    close(out[0], attention_by_loops(attention, x, visible, scale=scale, cap=cap), 1e-10)


def test_grouped_queries_share_keys_in_order() -> None:
    """Query heads 0 and 1 read key-value head 0, heads 2 and 3 read head 1."""
    settings = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 3}
    grouped = randomized(build_attention(config(**settings), 0))
    full = randomized(build_attention(config(num_attention_heads=4, head_dim=3), 0))
    for name in ("q_proj", "o_proj"):
        getattr(full, name).load_state_dict(getattr(grouped, name).state_dict())
    for name in ("k_proj", "v_proj"):
        for kind in ("weight", "bias"):
            by_head = getattr(getattr(grouped, name), kind).unflatten(0, (2, 3))
            getattr(getattr(full, name), kind).data = by_head[[0, 0, 1, 1]].flatten(0, 1)
    x = random(2, LENGTH, WIDTH)
    close(grouped(x)[0], full(x)[0].detach())


@pytest.mark.parametrize("task", ["causal-lm", "masked-lm"])
@pytest.mark.parametrize("window", [1, 2, 3])
def test_a_sliding_window_lets_a_query_see_that_many_keys(task: str, window: int) -> None:
    sizes: dict[str, Any] = {
        "vocab_size": 11,
        "hidden_size": WIDTH,
        "num_attention_heads": HEADS,
        "num_hidden_layers": 1,
    }
    model = zoo.build("pre-norm", task, seed=0, sliding_window=window, attn_implementation="eager", **sizes)
    with torch.no_grad():
        weights = model(torch.arange(LENGTH)[None], output_attentions=True).attentions[0]
    seen = [[j for j in range(LENGTH) if weights[0, :, i, j].min() > 0] for i in range(LENGTH)]
    for i in range(LENGTH):
        if task == "causal-lm":
            assert seen[i] == [j for j in range(LENGTH) if 0 <= i - j < window]
        else:
            assert i in seen[i]
            assert all(abs(i - j) <= window for j in seen[i])
            assert all((j in seen[i]) == (i in seen[j]) for j in range(LENGTH))


@pytest.mark.parametrize("kind", ["head", "full"])
def test_qk_norm_normalises_each_head_or_the_whole_projection(kind: str) -> None:
    attention = randomized(build_attention(config(qk_norm=kind, norm="rmsnorm"), 0))
    x = random(LENGTH, WIDTH)
    query = torch.tensor([affine(attention.q_proj, row) for row in x.tolist()], dtype=torch.float64)
    groups = query.unflatten(-1, (HEADS, HEAD)) if kind == "head" else query[:, None]
    roots = (groups.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    expected = (groups / roots * attention.q_norm.weight).reshape(LENGTH, HEADS, HEAD).transpose(0, 1)
    close(attention.split_heads(attention.q_proj(x[None]), attention.q_norm)[0], expected.detach())
