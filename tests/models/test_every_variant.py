"""Every property of `zoo.testing`, for every task of every variant that the registry lists."""

import pytest

from zoo.testing import Case, cases

FEW = ("pre-norm", "odom-style", "gemma2-style")
"""Variants for every task, with a stack of its own, and with most kinds of parts: enough between two edits."""


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case.variant in FEW else pytest.mark.thorough) for case in cases()],
    ids=str,
)
def test_every_variant(case: Case) -> None:
    case()
