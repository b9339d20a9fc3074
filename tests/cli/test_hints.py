"""The next command, with which commands end on a terminal."""

import re
import string

import click
import pytest

from zoo.cli.hints import EXAMPLES, NEXT, next_command
from zoo.cli.main import VERBS, cli

CONTEXT = click.Context(cli)
ON_THEIR_OWN = {"train", "compare", "plan", "explore", "env", "completion"}
ON_THEIR_OWN |= {"new plugin", "weights verify", "bench verify"}
"""What says itself what fits, does not end, or is printed for machines and reports."""


def commands() -> dict[str, click.Command]:
    """Every command by the words after `zoo`."""
    found: dict[str, click.Command] = {}
    for verb in VERBS:
        command = cli.get_command(CONTEXT, verb)
        assert command is not None
        inner = command.commands if isinstance(command, click.Group) else {}
        found |= {f"{verb} {name}": one for name, one in inner.items()} or {verb: command}
    return found


def test_every_command_has_two_examples() -> None:
    assert EXAMPLES.keys() == commands().keys()
    for verb, found in commands().items():
        shown = found.get_help(click.Context(found)).partition("Examples:\n")[2].splitlines()
        assert shown == [f"    {example}" for example in EXAMPLES[verb]] and len(set(shown)) == 2
        assert all(f"{line} ".startswith(f"    zoo {verb} ") for line in shown)


def test_every_command_has_a_next_one() -> None:
    assert NEXT.keys() <= commands().keys()
    missing = commands().keys() - NEXT.keys() - ON_THEIR_OWN
    assert not missing, missing


@pytest.mark.parametrize("verb", NEXT)
def test_the_next_command_is_one(verb: str) -> None:
    known = commands()
    wanted = {field for _, field, _, _ in string.Formatter().parse(NEXT[verb]) if field}
    assert wanted <= {parameter.name for parameter in known[verb].params}
    words = next_command(verb, dict.fromkeys(wanted, "a")).split()[1:]
    following = known.get(" ".join(words[:2])) or known[words[0]]
    options = {spelling for parameter in following.params for spelling in parameter.opts}
    assert {word for word in words if re.match("--?[a-z]", word)} <= options


def test_it_is_said_on_a_terminal_only(zoo) -> None:
    terminal = {"TTY_COMPATIBLE": "1", "TERM": "dumb"}
    shown = zoo("diff", "pre-norm", "post-norm", **terminal).stdout.splitlines()
    assert shown[-1] == "Next: zoo compare pre-norm post-norm --seeds 3"
    assert "Next:" not in zoo("diff", "pre-norm", "post-norm", columns=80).stdout
    assert "Next:" not in zoo("list", "--json", **terminal).stdout
    assert next_command("pull", {"repo_id": "a b"}) == "zoo explore 'a b'"
    assert next_command("generate", {"model": None}) == "zoo attention MODEL --source TEXT -o DIR"
