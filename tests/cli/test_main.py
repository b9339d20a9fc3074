"""The command itself: help, errors in one line, interrupts, and the next command, with which commands end."""

import errno
import importlib
import json
import os
import re
import shlex
import string
import subprocess
import sys
import warnings
from pathlib import Path

import click
import pytest
from command_line import run

import zoo as library
from zoo.base.errors import PluginWarning
from zoo.cli.hints import HINTS, next_command
from zoo.cli.main import VERBS, cli, home_of

INTERRUPTED = """
import os, signal
import zoo.registry
from zoo.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background processes begin without
zoo.registry.list_variants = lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGINT) or signal.pause()
main()
"""


def test_help_takes_less_than_half_a_second(command):
    def seconds():
        """Of computing, which a busy machine does not make more."""
        before = os.times()
        assert command("--help").returncode == 0
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    assert min(seconds() for _ in range(3)) < 0.5


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["show", "--help"], ["x"], ["list", "--task", "x"]])
def test_nothing_heavy_is_imported_before_it_is_needed(command, arguments):
    run = command(*arguments, PYTHONPROFILEIMPORTTIME="1")
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in run.stderr.splitlines()}
    assert "click" in imported and not imported & {"torch", "transformers", "huggingface_hub", "numpy"}


@pytest.mark.parametrize("verb", VERBS)
def test_the_list_of_verbs_has_the_line_of_each(zoo, verb):
    module, attribute = home_of(verb)
    found = getattr(importlib.import_module(module), attribute)
    line = verb + found.get_short_help_str(limit=200)
    assert found.name == verb and line.endswith(".")
    assert "".join(line.split()) in "".join(zoo("--help").stdout.split())


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(zoo, verb):
    run = zoo(verb, "--help")
    assert run.exit_code == 0 and run.stdout.startswith(f"Usage: zoo {verb}")
    assert ("--json" in run.stdout) == (verb not in ("bench", "completion", "explore", "new"))
    assert "\\b" not in run.stdout, "a mark that click should have read"


def test_without_a_verb_the_help_is_shown(zoo):
    assert "  vanilla+faithful    " in zoo("--help").stdout and zoo().stdout == zoo("--help").stdout
    assert zoo().exit_code == 0


def test_version(zoo):
    assert zoo("--version").stdout == f"zoo {library.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "useful"),
    [
        (["shwo", "vanilla"], "did you mean 'show'?"),
        (["--jsn"], "--jsn"),
        (["show"], "see `zoo show --help`"),
        (["show", "vanila"], "did you mean 'vanilla'?"),
        (["show", "vanilla+"], "NAME[@PRESET]"),
        (["show", "vanilla@smal"], "did you mean 'small'?"),
        (["show", "vanilla+dropout-on-skip"], "did you mean 'dropout-on-the-skip'?"),
        (["params", "vanilla", "--task", "causal-lm"], "does not support task 'causal-lm'"),
        (["params", "vanilla:hidden_siz=3"], "did you mean 'hidden_size'?"),
        (["diff", "pre-norm", "pre-nrom"], "did you mean 'pre-norm'?"),
        (["diff", "pre-norm", "post-norm", "--task", "causal"], "did you mean 'causal-lm'?"),
        (["list", "--tag", "decodr"], "did you mean 'decoder'?"),
        (["completion", "tcsh"], "'bash', 'zsh', 'fish'"),
        (["train", "pre-norm", "-o", "out", "--data", ""], "'--data': it is empty, and valid is a path"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(zoo, arguments, useful):
    run = zoo(*arguments)
    assert run.exit_code == 2 and run.stdout == "" and run.stderr.startswith("zoo: error: ")
    assert run.stderr.count("\n") == 1 and useful in run.stderr


def test_bad_input_in_a_process_of_its_own(command):
    run = command("show", "vanilla+")
    assert (run.returncode, run.stdout) == (2, "") and run.stderr.count("\n") == 1 and "Traceback" not in run.stderr


@pytest.fixture
def broken(monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("the disk\nis full")

    monkeypatch.setattr("zoo.analysis.parameters.count_by_parameter", fail)


def test_a_bug_is_called_one_in_one_line_with_what_a_report_needs(zoo, broken):
    run = zoo("params", "vanilla")
    assert run.exit_code == 1 and run.stderr.count("\n") == 1
    assert run.stderr.startswith("zoo: error: this is a bug of the zoo: RuntimeError: the disk is full; please report")
    versions = zoo("env").stdout.splitlines()[0]
    assert f"transformer-zoo {library.__version__}, torch " in versions
    assert run.stderr.rstrip().endswith(f"{versions} (--traceback shows where)")
    assert "## Report a bug" in Path("CONTRIBUTING.md").read_text()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "out/config.json"), "out/config.json: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (MemoryError(), "not enough memory"),
        (RuntimeError("can't allocate memory: you tried to allocate 9 bytes"), "can't allocate memory: you tried"),
        (ModuleNotFoundError("No module named 'matplotlib'"), "No module named 'matplotlib'"),
    ],
)
def test_what_the_machine_refuses_is_no_bug(zoo, monkeypatch, error, message):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr("zoo.analysis.parameters.count_by_parameter", fail)
    run = zoo("params", "vanilla")
    assert run.exit_code == 1 and run.stderr.startswith(f"zoo: error: {message}") and "bug" not in run.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="pipes of a POSIX shell")
def test_a_reader_that_goes_away_ends_the_command_silently(tmp_path):
    script = f"{sys.executable} -m zoo list --json 2>{tmp_path}/stderr | true"
    subprocess.run(["sh", "-c", script], check=True)
    assert (tmp_path / "stderr").read_text() == ""


def test_names_that_the_terminal_cannot_show_are_escaped(command, tmp_path):
    code = "import click, zoo.cli.main as m; m.cli.callback = lambda: click.echo('\\u4e2d \\udcff'); m.main()"
    run = command("list", "--task", "\u4e2d", code=code, PYTHONIOENCODING="latin-1")
    assert "UnicodeEncodeError" not in run.stderr and r"\u4e2d \udcff" in run.stdout and r"'\u4e2d'" in run.stderr


@pytest.mark.parametrize("arguments", [["--traceback", "params", "vanilla"], ["params", "vanilla", "--traceback"]])
def test_a_traceback_can_be_had_by_option(zoo, broken, arguments):
    run = zoo(*arguments)
    assert run.exit_code == 1 and "Traceback (most recent call last)" in run.stderr
    last = run.stderr.splitlines()[-1]
    assert last.startswith("zoo: error: this is a bug of the zoo: RuntimeError: the disk is full; please report")
    assert "--traceback" not in last


def test_a_traceback_can_be_had_by_environment(command):
    run = command("nonsense", ZOO_TRACEBACK="1")
    assert run.returncode == 2 and "Traceback (most recent call last)" in run.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="sends a POSIX signal")
def test_an_interrupt_exits_with_130(command):
    run = command("list", code=INTERRUPTED)
    assert run.returncode == 130 and run.stderr.strip().splitlines() == ["zoo: interrupted"]


def test_the_zoos_warnings_are_one_line(zoo, monkeypatch):
    def list_variants(*args, **kwargs):
        warnings.warn("plugin 'x' of y 1.0 is left out: ImportError: no\nmodule", PluginWarning, stacklevel=1)
        return []

    monkeypatch.setattr("zoo.cli.list.list_variants", list_variants)
    run = zoo("list", "--json")
    assert json.loads(run.stdout) == []
    assert run.stderr == "zoo: warning: plugin 'x' of y 1.0 is left out: ImportError: no module\n"


CONTEXT = click.Context(cli)
FOLLOWED = {verb for verb, hints in HINTS.items() if hints.following}
ON_THEIR_OWN = {"train", "compare", "plan", "explore", "env", "completion"}
ON_THEIR_OWN |= {"new plugin", "weights verify", "bench verify"}
"""Verbs that refuse by themselves, do not end, or print for machines and reports."""


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
    assert HINTS.keys() == commands().keys()
    for verb, found in commands().items():
        shown = found.get_help(click.Context(found)).partition("Examples:\n")[2].splitlines()
        assert shown == [f"    {example}" for example in HINTS[verb].examples] and len(set(shown)) == 2
        assert all(f"{line} ".startswith(f"    zoo {verb} ") for line in shown)


ALONE = (
    "list",
    "weights list",
    "weights show",
    "diff",
    "eject",
    "params",
    "settings",
    "recipes",
    "build",
    "plan",
    "export",
)
"""Verbs with examples that need no files, network or long training."""


@pytest.mark.slow
@pytest.mark.parametrize("example", [example for verb in ALONE for example in HINTS[verb].examples])
def test_examples_run(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*shlex.split(example)[1:])
    assert done.exit_code == 0, done.output


def test_every_command_has_a_next_one() -> None:
    assert commands().keys() >= FOLLOWED
    missing = commands().keys() - FOLLOWED - ON_THEIR_OWN
    assert not missing, missing


@pytest.mark.parametrize("verb", sorted(FOLLOWED))
def test_the_next_command_is_one(verb: str) -> None:
    known = commands()
    wanted = {field for _, field, _, _ in string.Formatter().parse(HINTS[verb].following) if field}
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
