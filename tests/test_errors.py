"""The error hierarchy, and the nearest match that its messages name."""

import inspect
import pickle

import pytest

import zoo.base.errors
from zoo.base.errors import (
    InvalidChoiceError,
    UnknownNameError,
    UnsupportedTaskError,
    ZooError,
    ZooWarning,
    enumerate_names,
    nearest,
    suggest,
)

VARIANTS = [
    "vanilla",
    "pre-norm",
    "post-norm",
    "llama-style",
    "roberta-prelayernorm-style",
    "bert-style",
    "gpt2-style",
    "ngpt",
]


NEAREST = {
    **{"vanila": "vanilla", "Vanilla": "vanilla", "pre_norm": "pre-norm", "PreNorm": "pre-norm"},
    **{"post norm": "post-norm", "llama": "llama-style", "bert": "bert-style", "gpt2": "gpt2-style"},
    **{"roberta": "roberta-prelayernorm-style", "xyzzy": None, "": None, "-": None},
}


@pytest.mark.parametrize(("given", "expected"), NEAREST.items())
def test_the_nearest_name_is_found(given: str, expected: str | None) -> None:
    assert nearest(given, VARIANTS) == expected and nearest(given, []) is None


def test_a_suggestion_ends_a_message() -> None:
    assert suggest("vanila", VARIANTS) == "; did you mean 'vanilla'?" and suggest("xyzzy", VARIANTS) == ""


def test_long_lists_are_cut() -> None:
    assert enumerate_names([]) == "none" and enumerate_names("ab") == "a, b"
    assert enumerate_names(map(str, range(17))).endswith("15, 16")
    assert enumerate_names(map(str, range(20))).endswith("14, 15 and 4 more")


def test_every_error_and_warning_has_the_projects_base() -> None:
    classes = inspect.getmembers(zoo.base.errors, inspect.isclass)
    own = [error for _, error in classes if error.__module__ == "zoo.base.errors"]
    assert len(own) > 20 and all(issubclass(error, (ZooError, ZooWarning)) for error in own)


def test_an_invalid_choice_names_the_field() -> None:
    error = InvalidChoiceError("pots", ["pre", "post"], kind="norm_placement")
    assert str(error) == "unknown norm_placement 'pots'; valid: pre, post; did you mean 'post'?"
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    "error",
    [
        UnknownNameError("a", ["b"], kind="thing", owner="somebody"),
        InvalidChoiceError("a", ["b"], kind="field"),
        UnsupportedTaskError("causal-lm", "nlpt-encoder", ["masked-lm"]),
    ],
)
def test_errors_survive_pickling(error: ZooError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)
