"""What attention sees: groups of queries, and windows."""

from typing import Any

import pytest
import torch
from models.formulas import HEADS, LENGTH, WIDTH, close, config, random, randomized

import zoo
from zoo.models.attention import build_attention


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
