"""Facts about the machine: `zoo doctor`, `zoo env`, `zoo completion`."""

from dataclasses import asdict

import click
from click.shell_completion import get_completion_class

from .output import answer, heading, indented, table, write, write_json
from .parameters import json_option


@click.command("doctor")
@json_option
def doctor(as_json: bool) -> None:
    """Try what this machine does well, and show which fast paths follow.

    Times products of matrices for about a second: full and half precision, on the processor and on every GPU.
    """
    from zoo.comparison.doctor import examine

    findings = examine()
    rows = [(finding.topic, finding.found, finding.advice) for finding in findings]
    answer(as_json, [asdict(finding) for finding in findings], table(("", "", ""), rows))


@click.command("env")
@json_option
def env(as_json: bool) -> None:
    """Show versions, plugins and devices, for bug reports."""
    from zoo.analysis.environment import environment, version_line

    found = environment()
    if as_json:
        write_json(found)
        return
    click.echo(version_line())
    for section, rows in found.items():
        lines = [(key, value or "not installed") for key, value in rows.items()] or [("none", "")]
        write(heading(section.capitalize()), indented(table(("", ""), lines)))


SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS), metavar=f"[{'|'.join(SHELLS)}]")
def completion(shell: str) -> None:
    """Print a shell's completion script.

    It completes verbs, options, tasks and the names of variants.

    \b
    bash: eval "$(zoo completion bash)"          in ~/.bashrc
    zsh:  eval "$(zoo completion zsh)"           in ~/.zshrc
    fish: zoo completion fish > ~/.config/fish/completions/zoo.fish
    """  # noqa: D301 - click reads the character \b
    from .main import cli

    completer = get_completion_class(shell)
    if completer is None:
        raise click.UsageError(f"click has no completion for {shell}")
    click.echo(completer(cli, {}, "zoo", "_ZOO_COMPLETE").source())
