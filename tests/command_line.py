"""The command line, run in the process of tests."""

from click.testing import CliRunner, Result

from zoo.cli.main import cli


def run(*arguments: object, columns: int | None = None, **env: str) -> Result:
    """Run `zoo`: `run("show", "vanilla", columns=80)`. With `columns`, as in a terminal of this width."""
    shell = {"COLUMNS": None if columns is None else str(columns), "ZOO_TRACEBACK": None, **env}
    return CliRunner(env=shell).invoke(cli, [str(argument) for argument in arguments])
