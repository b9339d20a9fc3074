"""Every property of `zoo.testing`, for every task of every variant that the registry lists."""

import pytest
from every_variant import ONE_TASK, enough, kinds_of

from zoo.building import stack_of
from zoo.registry import VARIANTS
from zoo.testing import Case, cases

FEW = ("pre-norm", "odom-style", "gemma2-style")
"""Variants for every task, with a stack of its own, and with most kinds of parts: enough between two edits."""

EVERY_HEAD = enough(ONE_TASK, lambda name: {kind for kind in kinds_of((name, ONE_TASK[name])) if kind[0] != "file"})
"""As few variants as have every part between them, tried with every head; the others with one a stack, at night all."""


def marks_of(case: Case) -> tuple[pytest.MarkDecorator, ...]:
    """When a case is tried: all of a few variants between two edits, one head a stack each time, the rest at night."""
    if case.variant in FEW:
        return ()
    variant = VARIANTS.get(case.variant)
    stack = stack_of(variant, case.task)
    first = next(task for task in variant.tasks if stack_of(variant, task) == stack)
    every_time = case.variant in EVERY_HEAD or case.task == first
    return (pytest.mark.thorough,) if every_time else (pytest.mark.thorough, pytest.mark.nightly)


@pytest.mark.parametrize("case", [pytest.param(case, marks=marks_of(case)) for case in cases()], ids=str)
@pytest.mark.usefixtures("on_device")
def test_every_variant(case: Case) -> None:
    case()


def test_a_device_that_is_not_there_is_refused(request: pytest.FixtureRequest) -> None:
    (conftest,) = (plugin for plugin in request.config.pluginmanager.get_plugins() if hasattr(plugin, "check_device"))
    for name in ("cuda:99", "nowhere"):
        with pytest.raises(pytest.UsageError, match=f"--device {name} cannot be used here"):
            conftest.check_device(name)
