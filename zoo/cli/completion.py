"""`zoo completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

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
    """  # noqa: D301 - click reads the character that \b stands for
    from .main import cli

    completer = get_completion_class(shell)
    if completer is None:
        raise click.UsageError(f"click has no completion for {shell}")
    click.echo(completer(cli, {}, "zoo", "_ZOO_COMPLETE").source())
