"""What attention sees: groups of queries, and windows."""

from typing import Any

import pytest
import torch
from models.formulas import HEADS, LENGTH, WIDTH, close, config, random, randomized

import zoo
from zoo.base.errors import InputError
from zoo.models.attention import build_attention

SIZES: Any = {"vocab_size": 11, "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_hidden_layers": 1}


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
    model = zoo.build("pre-norm", task, seed=0, sliding_window=window, attn_implementation="eager", **SIZES)
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


def visible(causal: bool) -> torch.Tensor:
    """A row without padding and one that ends in two positions of it. *Shape:* (2, 1, LENGTH, LENGTH)"""
    seen = torch.ones(2, 1, LENGTH, LENGTH, dtype=torch.bool)
    seen[1, ..., -2:] = False
    return seen.tril() if causal else seen


FORMS = {
    "boolean": lambda seen: seen,
    "integers": lambda seen: seen.long(),
    "bytes": lambda seen: seen.to(torch.uint8),
    "float64": lambda seen: torch.zeros(seen.shape).double().masked_fill(~seen, torch.finfo(torch.float64).min),
    "bfloat16": lambda seen: torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.bfloat16).min).bfloat16(),
    "infinite": lambda seen: torch.zeros(seen.shape).masked_fill(~seen, -torch.inf),
    "of every head": lambda seen: seen.expand(-1, HEADS, -1, -1).int(),
    "of a layer type": lambda seen: {"full_attention": seen.long()},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("backend", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("part", "task"), [("multi-head", "causal-lm"), ("sinks", "masked-lm"), ("masked-rows-uniform", "causal-lm")]
)
def test_a_mask_of_queries_and_keys_hides_the_same_in_every_form(part: str, task: str, backend: str, form: str) -> None:
    if (part, backend) == ("masked-rows-uniform", "sdpa"):
        return  # refused
    model = zoo.build("pre-norm", task, seed=0, attention=part, attn_implementation=backend, **SIZES)
    ids, seen = torch.arange(2 * LENGTH).view(2, -1) % 11, visible(task == "causal-lm")
    with torch.no_grad():
        expected = model(ids, attention_mask=seen[:, 0, -1].long()).logits
        logits = model(ids, attention_mask=FORMS[form](seen)).logits
    torch.testing.assert_close(logits[1, :-2], expected[1, :-2])
    torch.testing.assert_close(logits[0], expected[0])


@pytest.mark.parametrize("task", ["causal-lm", "masked-lm"])
@pytest.mark.parametrize("shape", [(LENGTH,), (1, LENGTH), (3, LENGTH), (2, LENGTH + 2), (2, 3, LENGTH)])
def test_a_mask_of_another_shape_is_refused(task: str, shape: tuple[int, ...]) -> None:
    model = zoo.build("pre-norm", task, position="learned-unpadded", **SIZES)
    with pytest.raises(InputError, match="attention_mask"):
        model(torch.ones(2, LENGTH, dtype=torch.long), attention_mask=torch.ones(shape, dtype=torch.long))
