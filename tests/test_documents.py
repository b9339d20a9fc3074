"""What the documents show works as they show it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import zoo
from zoo.cli.main import cli
from zoo.registry import VARIANTS

ROOT = Path(__file__).parents[1]


def blocks(document: str, language: str) -> list[str]:
    """The fenced code blocks of a document."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def run(*arguments: str, folder: Path, **environment: str) -> str:
    """Run Python in a folder, and return what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands(document: Path) -> list[str]:
    """The commands `zoo ...` of a document, those of several lines as one, without what a comment says of them."""
    text = document.read_text(encoding="utf-8").replace("\\\n", " ")
    return re.findall(r"^\$ (zoo .*?)(?:\s{2,}#.*)?$", text, flags=re.MULTILINE)


COMMANDS = [
    pytest.param(command, id=f"{document.name}-{command}")
    for document in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
    for command in commands(document)
    if "..." not in command
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_documents_is_one(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its verb, its options and their values are read as they are when it runs; nothing is done with them."""
    monkeypatch.chdir(tmp_path)
    arguments = shlex.split(command)[1:]
    for argument in arguments:
        if re.fullmatch(r"[\w/]+\.(txt|csv|tsv|pt)|reviews|model|out|models/[\w-]+", argument):
            Path(argument).parent.mkdir(exist_ok=True)
            Path(argument).touch()
    found: click.Command = cli
    context = None
    while isinstance(found, click.Group) and arguments and not arguments[0].startswith("-"):
        context = found.make_context(found.name, list(arguments), parent=context)
        _, found, arguments = found.resolve_command(context, arguments)
    found.make_context(found.name, list(arguments), parent=context)
    variants = [word for word in arguments if word.partition(":")[0].partition("@")[0].partition("+")[0] in VARIANTS]
    for name in variants:
        zoo.describe(name)


@pytest.mark.slow
def test_the_variant_of_the_contributing_guide_passes_the_suite(tmp_path: Path) -> None:
    (code,) = blocks("CONTRIBUTING.md", "python")
    assert len(code.splitlines()) <= 60
    (tmp_path / "macaron.py").write_text(code)
    program = "import macaron; from zoo.testing import check_variant; check_variant('macaron-style'); print('passed')"
    assert run("-c", program, folder=tmp_path).endswith("passed\n")


@pytest.mark.slow
def test_the_plugin_of_the_guide_installs_and_builds(tmp_path: Path) -> None:
    (project,) = blocks("docs/plugins.md", "toml")
    (code,) = blocks("docs/plugins.md", "python")
    assert len((project + code).splitlines()) < 40
    source, site = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    (source / "pyproject.toml").write_text(project)
    (source / "zoo_triangle.py").write_text(code)
    install = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site), str(source))
    run("-m", "pip", "install", *install, folder=tmp_path)

    program = """
import zoo
print(zoo.list_variants("triangle*"))
print(type(zoo.build("triangle-decoder@tiny", vocab_size=10)).__name__)
print(zoo.config("pre-norm@tiny", position="triangle").providers)
"""
    expected = "['triangle-decoder']\nZooForCausalLM\n{'position': 'zoo-triangle'}\n"
    assert run("-c", program, folder=tmp_path, PYTHONPATH=str(site)) == expected


@pytest.mark.parametrize("document", ["README.md", "README.pt-BR.md"])
def test_the_first_lines_translate_and_draw(document: str, tmp_path: Path) -> None:
    code = blocks(document, "python")[0]
    assert run("-c", code, folder=tmp_path, HF_HUB_OFFLINE="1") == "A água está fria.\n"
    assert (tmp_path / "cross.png").stat().st_size > 1000


def test_the_tables_of_weights_are_what_the_command_prints() -> None:
    from zoo.registry import find_weights, list_weights
    from zoo.weights.tables import to_markdown

    text = (ROOT / "docs/weights.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"<!-- zoo weights list --markdown -->\n(.*?)<!-- end -->", text, flags=re.DOTALL)
    assert shown == to_markdown(map(find_weights, list_weights()))
