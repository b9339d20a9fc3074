"""The public surface is the one that docs/api.md lists, what breaks it is shown, and old names work for a while."""

import importlib.util
import inspect
import re
import subprocess
import warnings
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner
from typing_extensions import deprecated

from zoo.base.deprecation import renamed
from zoo.base.errors import DeprecatedNameWarning

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def api() -> ModuleType:
    loader = SourceFileLoader("api_of_the_zoo", str(ROOT / "scripts/api"))
    spec = importlib.util.spec_from_loader("api_of_the_zoo", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_the_page_lists_what_the_code_has(api: ModuleType) -> None:
    """`python scripts/api` writes it."""
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    (listed,) = re.findall(rf"<!-- {api.COMMAND} -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert listed == api.surface()


def test_every_public_name_has_a_docstring(api: ModuleType) -> None:
    for place in api.public_modules():
        module = importlib.import_module(place)
        values = {name: getattr(module, name) for name in api.names_of(module)}
        assert not [name for name, value in values.items() if callable(value) and not value.__doc__], place


def test_every_room_for_users_is_public_or_has_no_list_of_names(api: ModuleType) -> None:
    public = {name.split(".")[1] for name in api.public_modules() if "." in name}
    for room in sorted(path.name for path in (ROOT / "zoo").iterdir() if (path / "__init__.py").exists()):
        listed = getattr(importlib.import_module(f"zoo.{room}"), "__all__", None)
        assert room in public or not listed, f"zoo.{room} lists names: add it to scripts/api, or remove its __all__"


@pytest.mark.skipif(importlib.util.find_spec("griffe") is None, reason="griffe is not installed")
def test_what_a_change_breaks_is_listed(api: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a package of a test: a parameter and a name are gone, what is private or not listed may change."""
    before = {
        "zoo/__init__.py": "from zoo.home import function as function\n__all__ = ['function']\n",
        "zoo/home.py": "def function(a, b=1): ...\ndef internal(a): ...\n",
        "zoo/fast/__init__.py": "from .switches import one, two\n__all__ = ['one', 'two']\n",
        "zoo/fast/switches.py": "def one(): ...\ndef two(): ...\n",
        "registry/__init__.py": "",
        "converters/__init__.py": "",
        "docs/api.md": "## Functions\n\n## Variables of the environment\n\n- `ZOO_DATA`\n- `ZOO_GONE`\n",
    }
    for name, text in before.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "before"]):
        subprocess.run(["git", *author, *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(api, "ROOT", tmp_path)
    monkeypatch.setattr(api, "PAGE", tmp_path / "docs/api.md")
    monkeypatch.setattr(api, "public_modules", lambda: ["zoo", "zoo.fast"])
    monkeypatch.setattr(api, "surface", lambda: "## Functions\n\n## Variables of the environment\n\n- `ZOO_DATA`\n")
    assert api.broken("HEAD") == []
    (tmp_path / "zoo/home.py").write_text("def function(a): ...\n")
    (tmp_path / "zoo/fast/__init__.py").write_text("from .switches import one\n__all__ = ['one']\n")
    lost, changed = api.broken("HEAD")
    assert lost == "zoo.fast.two was removed"
    assert changed.startswith("zoo/home.py:1: function(b): Parameter was removed")
    assert api.lost_lines("HEAD") == ["`ZOO_GONE` is no longer there"]


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.skipif(importlib.util.find_spec("griffe") is None, reason="griffe is not installed")
def test_the_zoo_itself_is_compared(api: ModuleType) -> None:
    assert isinstance(api.broken("HEAD"), list)


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
