"""What the documents show works as they show it."""

import ast
import importlib.util
import json
import os
import re
import runpy
import shlex
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from hub.loopback import loopback_hub
from hub.messages import User
from preloaded import run_python
from snippets import PACKAGES, ROOT, docstrings, python_of, snippets

import zoo
from zoo.base.files import replace_part
from zoo.cli.hints import HINTS
from zoo.cli.main import cli
from zoo.registry import VARIANTS
from zoo.testing.new_plugin import plugin_files

PAGES = sorted(str(page.relative_to(ROOT)) for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")))
SOURCES = sorted(str(file.relative_to(ROOT)) for folder in PACKAGES for file in (ROOT / folder).rglob("*.py"))
NEEDED = {"docs/on-device.md": ("executorch", "mlx_lm")}
"""What a page needs that is nothing of the zoo's; where it is not installed, the page's Python is only compiled."""
WITH_PYTHON = [document for document in [*PAGES, *SOURCES] if python_of(document)]
RUN = [document for document in WITH_PYTHON if all(map(importlib.util.find_spec, NEEDED.get(document, ())))]
TRANSLATED = {"README.pt-BR.md": "README.md"}
AT_NIGHT = {"converters/exporting.py", "docs/comparing.md", "docs/inside.md", *TRANSLATED}
"""What takes a minute to run, or is the code of another page."""


def blocks(document: str, language: str) -> list[str]:
    """The fenced code blocks of a page."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return [snippet.code for snippet in snippets(text) if snippet.language == language]


def run(*arguments: str, folder: Path, **environment: str) -> str:
    """Run Python in a folder, and return what it prints."""
    done = run_python(arguments, env={**os.environ, **environment}, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands(document: Path) -> list[str]:
    """The commands `zoo ...` of a document, those of several lines as one, without their comments."""
    text = document.read_text(encoding="utf-8").replace("\\\n", " ")
    return re.findall(r"^\$ (zoo .*?)(?:\s{2,}#.*)?$", text, flags=re.MULTILINE)


COMMANDS = [
    pytest.param(command, id=f"{document.name}-{command}")
    for document in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
    for command in commands(document)
    if "..." not in command
]
COMMANDS += [pytest.param(command, id=f"--help-{command}") for hint in HINTS.values() for command in hint.examples]


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
    code, *parts, _ = blocks("docs/plugins.md", "python")  # the last one is a plain form
    assert len((project + code).splitlines()) < 40
    shown = {"norm": "scale-norm", "position": "triangle-waves", "activation": "cubed-relu", "mixer": "prefix-sum"}
    assert parts == [plugin_files(kind, name)[f"{name.replace('-', '_')}.py"] for kind, name in shown.items()]
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


HTML = {"a", "br", "details", "div", "img", "kbd", "p", "picture", "source", "sub", "summary", "sup"}


def test_marks_of_tokens_are_code() -> None:
    """As HTML, where they are not, <mask> and <bos> are elements that no reader sees."""
    pages = {page: [(ROOT / page).read_text(encoding="utf-8")] for page in PAGES}
    pages |= {file: [text for text, _ in docstrings(ROOT / file)] for file in SOURCES if "/cli/" not in file}
    for page, texts in pages.items():
        prose = re.sub(r"```.*?```|`[^`]*`|<!--.*?-->", "", "\n\n".join(texts), flags=re.DOTALL)
        assert set(re.findall(r"</?([a-zA-Z_][\w-]*)[^>]*>", prose)) <= HTML, page


@pytest.mark.parametrize("page", TRANSLATED)
def test_a_translated_page_shows_the_code_of_the_other(page: str) -> None:
    """All but its comments, which are in the reader's language."""
    theirs, ours = ([ast.dump(ast.parse(one)) for one in blocks(name, "python")] for name in (page, TRANSLATED[page]))
    assert theirs == ours and ours


@pytest.mark.parametrize("page", TRANSLATED)
def test_a_translated_page_has_the_links_the_pictures_and_the_parts_of_the_other(page: str) -> None:
    """The pages of each benchmark, which its table links to, are among them."""
    theirs, ours = ((ROOT / name).read_text(encoding="utf-8") for name in (page, TRANSLATED[page]))
    for pattern in (r"\]\((?!README)([^)#]+)", r'src="([^"]+)"', r"^(#+) "):
        found, wanted = (re.findall(pattern, text, flags=re.MULTILINE) for text in (theirs, ours))
        assert sorted(found) == sorted(wanted)


@pytest.fixture(scope="module")
def answer() -> Iterator[Callable[[str], dict[str, str]]]:
    """Runs the Python of a document, in one process for all of a night or of every time; the Hub is on this machine."""
    answers: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as name, loopback_hub(Path(name)) as hub:
        hub.users["hf_writesAboutItself"] = User("me")
        mine = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": "hf_writesAboutItself", "HF_HUB_OFFLINE": "0"}
        environment = {**os.environ, **mine, "HF_HOME": f"{name}/home", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}

        def get(document: str) -> dict[str, str]:
            if document not in answers:
                together = [one for one in RUN if (one in AT_NIGHT) == (document in AT_NIGHT)]
                command = [str(ROOT / "tests/snippets.py"), f"{name}/{document in AT_NIGHT}", *together]
                done = run_python(command, env=environment)
                reported = [json.loads(line) for line in done.stdout.splitlines()]
                assert len(reported) == len(together), done.stderr
                answers.update({one["document"]: one for one in reported})
            return answers[document]

        yield get


@pytest.mark.slow
@pytest.mark.parametrize("document", [pytest.param(at, marks=[pytest.mark.nightly] * (at in AT_NIGHT)) for at in RUN])
def test_its_python_runs(document: str, answer: Callable[[str], dict[str, str]]) -> None:
    """From top to bottom, with what its reader has already."""
    got = answer(document)
    assert "error" not in got, got["error"]
    if document.startswith("README"):
        assert got["printed"].startswith("A água está fria.\n")


@pytest.mark.parametrize("document", WITH_PYTHON)
def test_its_python_is_python(document: str) -> None:
    for snippet in python_of(document):
        compile(snippet.code, document, "exec")


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/from-*.md")), ids=lambda page: page.stem)
def test_its_commands_run_after_its_python(page: Path, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("\n".join(other.read_text("utf-8") for other in ROOT.glob("docs/*.md")))
    run("-c", "\n".join(blocks(f"docs/{page.name}", "python")), folder=tmp_path)
    for command in commands(page):
        shorter = ["--max-steps", "2"] if command.startswith("zoo train") else []
        run("-m", *shlex.split(command), *shorter, folder=tmp_path, HF_HUB_OFFLINE="1")


def test_examples_in_docstrings_are_fenced() -> None:
    """Only then they are run."""
    for source in SOURCES:
        for text, line in docstrings(ROOT / source):
            for one in re.findall(r"(?<=\n\n)(?: {4}.*\n)+", text):
                try:
                    ast.parse("\n".join(words[4:] for words in one.splitlines()))
                except SyntaxError:
                    continue
                raise AssertionError(f"{source}, line {line}: fence this example with ```python")


def test_the_first_steps_are_short_and_their_times_are_what_was_recorded() -> None:
    spec = importlib.util.spec_from_file_location("newcomer", ROOT / "scripts/bench/newcomer.py")
    assert spec is not None and spec.loader is not None
    newcomer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(newcomer)
    for title in newcomer.STEPS:
        shown = [*newcomer.commands(title), *"".join(newcomer.files(title).values()).splitlines()]
        assert 0 < len([line for line in shown if line.strip()]) < 10
    assert newcomer.INSTALL in newcomer.commands(newcomer.STEPS[0])
    assert newcomer.table() in newcomer.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("script", "page"), [("bench/engines", "performance.md"), ("upstream/tools", "transformers.md")]
)
def test_a_table_is_what_was_recorded(script: str, page: str) -> None:
    table = runpy.run_path(str(ROOT / f"scripts/{script}.py"))["table"]()
    assert table in (ROOT / "docs" / page).read_text(encoding="utf-8")


def test_the_scores_on_english_are_what_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python scripts/bench/english.py` writes them."""
    monkeypatch.syspath_prepend(ROOT / "scripts/bench")
    english = runpy.run_path(str(ROOT / "scripts/bench/english.py"))
    assert english["page"]() == (ROOT / "docs/english.md").read_text("utf-8")


def test_the_numbers_of_the_paper_are_what_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python scripts/bench/paper.py` writes them."""
    monkeypatch.syspath_prepend(ROOT / "scripts/bench")
    paper = runpy.run_path(str(ROOT / "scripts/bench/paper.py"))
    assert paper["page"]() == (ROOT / "docs/paper.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["README.md", *TRANSLATED])
def test_the_readme_is_short_and_begins_with_a_model_that_answers(page: str) -> None:
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 120
    first = "\n".join(lines[:30])
    wanted = ("pip install transformer-zoo", "zoo generate", "maps.output", "docs/pictures/quirks.svg")
    assert all(one in first for one in wanted)


def test_every_tool_was_run_and_works() -> None:
    tools = runpy.run_path(str(ROOT / "scripts/upstream/tools.py"))
    recorded = json.loads(tools["RECORD"].read_text(encoding="utf-8"))
    assert list(recorded) == list(tools["TOOLS"])
    assert [name for name, row in recorded.items() if "fails" in row["result"]] == []


def test_a_command_replaces_its_own_part_of_a_page() -> None:
    page = "before\n<!-- a.py -->\nold\n<!-- end -->\n<!-- b.py -->\nkept\n<!-- end -->\n"
    assert replace_part(page, "a.py", "\\1 new\n") == page.replace("old", "\\1 new")
    with pytest.raises(ValueError, match="no part between <!-- c.py --> and <!-- end -->"):
        replace_part(page, "c.py", "new\n")


@pytest.mark.parametrize("page", PAGES)
def test_the_scripts_that_it_names_are_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [one for one in re.findall(r"\bscripts/[\w/.-]*\w", text) if not (ROOT / one).exists()] == []


def test_the_tables_of_weights_are_what_the_command_prints() -> None:
    from zoo.building.weights.tables import to_markdown
    from zoo.registry import find_weights, list_weights

    text = (ROOT / "docs/weights.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"<!-- zoo weights list --markdown -->\n(.*?)<!-- end -->", text, flags=re.DOTALL)
    assert shown == to_markdown(map(find_weights, list_weights()))
