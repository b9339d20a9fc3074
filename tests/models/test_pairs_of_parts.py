"""Every two parts make a model that learns and decodes, or are refused by an error that names both."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import pytest
import torch

import zoo
from zoo.base.errors import ConfigError
from zoo.models.choices import AttentionScale, NormPlacement, QKNorm, ResidualScaling
from zoo.models.parts import PART_FIELDS
from zoo.testing import token_ids

Part: TypeAlias = tuple[str, Any]  # A setting and its value

LENGTH = 6
SIZES = {
    "vocab_size": 23,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "head_dim": 4,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
    "initializer_range": 0.02,
}

AXES: dict[str, list[Any]] = {
    **{
        field: [name for name in parts if parts.origin(name).built_in and not getattr(parts.get(name), "read_by", ())]
        for field, parts in PART_FIELDS.items()
    },
    "norm_placement": [str(word) for word in NormPlacement],
    "qk_norm": [None, *map(str, QKNorm)],
    "residual_scaling": [None, *map(str, ResidualScaling)],
    "attention_scale": [str(word) for word in AttentionScale],
    "num_key_value_heads": [4, 2],
    "sliding_window": [None, 2],
    "nope_layers": [None, [False, True]],
    "attn_logit_softcapping": [None, 5.0],
    "share_layers": [False, True],
    "parallel_residual": [False, True],
    "mlp_inner_norm": [False, True],
    "embedding_size": [None, 8],
    "tie_word_embeddings": [False, True],
    "num_nextn_predict_layers": [0, 1],
}
"""Registries of parts, and settings that parts have to get along with, with their values."""

BY_DAY: dict[str, list[Any]] = {
    **{field: AXES[field] for field in PART_FIELDS},
    "hidden_act": ["gelu", "silu", "prelu", "xielu"],
    "norm_placement": AXES["norm_placement"],
    "residual_scaling": AXES["residual_scaling"],
    "num_nextn_predict_layers": [0, 1],
}
"""Fewer of them; the last two activations have weights."""


def works(task: str, chosen: dict[str, Any]) -> None:
    """Build a model, train a step on a padded batch, and for a decoder read a text in two pieces."""
    model = zoo.build("pre-norm", task, seed=0, **{**SIZES, **chosen})
    ids = token_ids(2, LENGTH, SIZES["vocab_size"], 0)
    mask = torch.ones_like(ids)
    mask[0, -2:] = 0
    model.train()
    loss = model(input_ids=ids, attention_mask=mask, labels=ids).loss
    loss.backward()
    assert loss.isfinite()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name
    if task == "causal-lm":
        model.eval()
        with torch.no_grad():
            whole = model(input_ids=ids, use_cache=False).logits
            start = model(input_ids=ids[:, :-1], use_cache=True)
            last = model(input_ids=ids[:, -1:], past_key_values=start.past_key_values).logits
        torch.testing.assert_close(last, whole[:, -1:], atol=1e-4, rtol=1e-4)


def named(parts: Iterable[Part], error: Exception) -> list[Part]:
    """The parts that an error names, by the setting or by its value. The stack counts as one."""
    text = str(error)
    stacks = [("stack", word) for word in ("encoder", "cross attention") if word in text]
    return [part for part in parts if re.search(rf"\b{part[0]}=", text) or repr(part[1]) in text] + stacks[:1]


def fault(task: str, pair: tuple[Part, Part]) -> str | None:
    """What is wrong with a pair: None if it works, or is refused by an error that names both."""
    try:
        works(task, dict(pair))
    except ConfigError as error:
        return None if len(named(pair, error)) >= 2 else f"{pair}: names one part only: {error}"
    except Exception as error:  # any exception is a fault
        return f"{pair}: {type(error).__name__}: {error}"
    return None


@pytest.mark.nightly
@pytest.mark.parametrize("field", list(AXES)[:-1])
@pytest.mark.parametrize(("task", "depth"), [("causal-lm", 3), ("causal-lm", 4), ("masked-lm", 3), ("seq2seq-lm", 3)])
def test_every_pair_works_or_is_refused(task: str, depth: int, field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "num_hidden_layers", depth)
    later = list(AXES)[list(AXES).index(field) + 1 :]
    pairs = itertools.product(parts_of(field, AXES), (part for name in later for part in parts_of(name, AXES)))
    assert not list(filter(None, (fault(task, pair) for pair in pairs)))


def parts_of(field: str, axes: dict[str, list[Any]]) -> list[Part]:
    return [(field, value) for value in axes[field]]


def covering(axes: dict[str, list[Any]], is_refused: Callable[[dict[str, Any]], set[Part]]) -> Iterator[dict[str, Any]]:
    """Few models with every pair of parts between them, but for those that `is_refused` gives."""
    pairs = [
        frozenset(pair)
        for one, other in itertools.combinations(axes, 2)
        for pair in itertools.product(parts_of(one, axes), parts_of(other, axes))
    ]
    missing, refused = dict.fromkeys(pairs), set[frozenset[Part]]()
    while missing:
        seed = next(iter(missing))
        model = dict(seed)
        for field in axes:
            if field not in model:
                fits = [
                    part for part in parts_of(field, axes) if not any({part, old} in refused for old in model.items())
                ]
                model |= [max(fits, key=lambda part: sum(frozenset((part, old)) in missing for old in model.items()))]
        if culprits := is_refused(model):
            refused |= (found := {frozenset(pair) for pair in itertools.combinations(culprits, 2)})
            missing = {pair: None for pair in missing if pair not in found}
            continue
        for pair in itertools.combinations(model.items(), 2):
            missing.pop(frozenset(pair), None)
        yield model


def refusing(model: dict[str, Any]) -> set[Part]:
    """The two parts or more of a model by which its configuration is refused."""
    try:
        zoo.config("pre-norm", "causal-lm", **{**SIZES, **model})
    except ConfigError as error:
        culprits = {part for part in named(model.items(), error) if part[0] != "stack"}
        assert len(culprits) >= 2, f"names one part only: {error}"
        return culprits
    return set()


def test_parts_work_in_pairs() -> None:
    for model in covering(BY_DAY, refusing):
        works("causal-lm", model)
