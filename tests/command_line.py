"""The command line, run in the process of tests."""

from click.testing import CliRunner, Result

from zoo.cli.main import cli


def run(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": None}).invoke(cli, [str(argument) for argument in arguments])
