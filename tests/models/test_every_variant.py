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
@pytest.mark.usefixtures("on_device")
def test_every_variant(case: Case) -> None:
    case()


def test_a_device_that_is_not_there_is_refused(request: pytest.FixtureRequest) -> None:
    (conftest,) = (plugin for plugin in request.config.pluginmanager.get_plugins() if hasattr(plugin, "check_device"))
    for name in ("cuda:99", "nowhere"):
        with pytest.raises(pytest.UsageError, match=f"--device {name} cannot be used here"):
            conftest.check_device(name)
