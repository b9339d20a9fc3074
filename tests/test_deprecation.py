"""Old names work for a while, with a warning at the user's line that names the replacement."""

import inspect
import warnings

import click
import pytest
from click.testing import CliRunner
from typing_extensions import deprecated

from zoo.base.deprecation import renamed
from zoo.base.errors import DeprecatedNameWarning


@renamed(dev="heldout")
def score(data: str, heldout: str | None = None) -> tuple[str, str | None]:
    return data, heldout


def test_an_argument_is_accepted_by_its_old_name() -> None:
    with pytest.warns(DeprecatedNameWarning, match=r"argument 'dev' of score\(\) is deprecated: use 'heldout'") as seen:
        assert score("a", dev="b") == ("a", "b")  # type: ignore[call-arg]
    assert seen[0].filename == __file__ and list(inspect.signature(score).parameters) == ["data", "heldout"]


def test_its_new_name_gives_no_warning_and_both_are_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert score("a", heldout="b") == ("a", "b")
    with pytest.raises(TypeError, match="got 'heldout' and its old name 'dev'"):
        score("a", heldout="b", dev="c")  # type: ignore[call-arg]


def test_a_function_is_deprecated_as_the_policy_shows() -> None:
    @deprecated("use 'build'", category=DeprecatedNameWarning)
    def create() -> int:
        return 1

    with pytest.warns(DeprecatedNameWarning, match=r"use 'build'") as seen:
        assert create() == 1
    assert seen[0].filename == __file__


def test_an_option_is_deprecated_as_the_policy_shows() -> None:
    @click.command()
    @click.option("--dev", deprecated="use --heldout")
    def train(dev: str) -> None:
        click.echo(dev)

    result = CliRunner().invoke(train, ["--dev", "file"])
    assert result.exit_code == 0 and "file" in result.output and "use --heldout" in result.output
