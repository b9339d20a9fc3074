"""The command line, run in the process of tests, and what engines it needs."""

from importlib.util import find_spec

import pytest
from click.testing import CliRunner, Result

from zoo.cli.main import cli


def run(*arguments: object, columns: int | None = None, **env: str) -> Result:
    """Run `zoo`: `run("show", "vanilla", columns=80)`. With `columns`, as in a terminal of this width."""
    shell = {"COLUMNS": None if columns is None else str(columns), "ZOO_TRACEBACK": None, **env}
    return CliRunner(env=shell).invoke(cli, [str(argument) for argument in arguments])


def skip_without(module: str) -> None:
    """Skip a test without a module, and import none: the zoo sets up how CTranslate2 multiplies before it does."""
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
