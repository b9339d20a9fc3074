"""The package itself: what is imported when, where public names live, and what gets installed."""

from __future__ import annotations

import email
import hashlib
import importlib
import importlib.metadata
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from preloaded import run_python

import zoo

ROOT = Path(__file__).parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
HEAVY = {"torch", "transformers", "huggingface_hub", "numpy", "importlib.metadata"}


@pytest.mark.parametrize("statement", ["import zoo", "import zoo.base.errors", "import zoo.cli.main"])
def test_importing_it_is_cheap(statement: str) -> None:
    code = f"{statement}; import sys; print(*{HEAVY!r} & sys.modules.keys())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_the_registry_imports_the_standard_library_only() -> None:
    code = "import sys; before = set(sys.modules); import zoo.registry; print(*(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    top_level = {name.partition(".")[0] for name in run.stdout.split()}
    assert top_level - set(sys.stdlib_module_names) == {"zoo"}


@pytest.mark.parametrize("name", zoo.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(zoo, name) is not None and name in dir(zoo)


def test_public_names_are_what_their_homes_define() -> None:
    for name, home in zoo._HOMES.items():
        assert getattr(zoo, name) is getattr(importlib.import_module(home), name)
    assert sorted(zoo.__all__) == sorted([*zoo._HOMES, "__version__"])


def test_no_public_name_is_also_a_module() -> None:
    """Importing the module would put it in the place of the function."""
    modules = {module.name for module in pkgutil.iter_modules(zoo.__path__)} | {"registry", "converters"}
    assert not modules & set(zoo.__all__), "call the package something else, e.g. zoo.comparison"


@pytest.mark.slow
def test_what_the_documents_write_is_there_after_import_zoo() -> None:
    """Names, and submodules that nothing has imported: those alone are shown. `zoo.plugins` names entry points."""
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in documents)
    written = set(re.findall(r"(?<!from )(?<!import )\bzoo\.([a-z_0-9]+)\b(?!/)", text)) - {"cli", "plugins"}
    code = f"import zoo; [getattr(zoo, name) for name in {sorted(written)!r}]; print(*dir(zoo))"
    run = run_python(["-c", code], env=os.environ)
    assert {"inside", "build", "to_int8"} <= written
    # Where registry/ and converters/ are next to zoo/, as in a source distribution, the path has their folder, too.
    modules = {module.name for module in pkgutil.iter_modules(zoo.__path__[:1])} | {"registry", "converters"}
    assert run.returncode == 0, run.stderr
    assert set(run.stdout.split()) == modules - {"__main__", "cli"} | set(zoo.__all__)


def test_the_root_of_a_checkout_can_be_imported_from_after_a_plain_installation() -> None:
    """There the checkout's zoo comes before the installed one; without what makes this installation editable."""
    code = (
        "import sys; sys.meta_path[:] = [one for one in sys.meta_path if 'ditable' not in repr(one)]; "
        "import zoo, zoo.converters, zoo.registry; print(zoo.__file__)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, str(ROOT / "zoo/__init__.py")), run.stderr


def test_the_version_is_the_distributions() -> None:
    assert zoo.__version__ == importlib.metadata.version("transformer-zoo")


CONSTRAINTS = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]


def test_every_direct_and_indirect_dependency_is_pinned() -> None:
    pins = {pin.name: pin for pin in map(Requirement, CONSTRAINTS) if pin.marker is None or pin.marker.evaluate()}
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", line) for line in CONSTRAINTS)
    assert sorted(CONSTRAINTS) == CONSTRAINTS
    needed = {name for name in dependencies("transformer-zoo", "dev") if not name.startswith(("cuda-", "nvidia-"))}
    if any(importlib.metadata.version(name) not in pins[name].specifier for name in needed & pins.keys()):
        pytest.skip("other versions than the tested ones are installed, and need other packages")
    assert needed - pins.keys() <= {"triton"}, "torch brings it for GPUs"


def test_the_extra_of_tested_versions_is_the_constraints() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    listed = {
        name: [line.strip(" ,").strip(line.strip()[0]) for line in lines.splitlines()]
        for name, lines in re.findall(r"^(\w+) = \[\n(.*?)^\]", text, re.DOTALL | re.MULTILINE)
    }
    direct = {Requirement(line).name for line in listed["dependencies"]}
    assert listed["tested"] == [line for line in CONSTRAINTS if Requirement(line).name in direct]


def dependencies(distribution: str, *extras: str) -> set[str]:
    """The names of everything that an installed distribution needs here, directly or not."""
    found: set[str] = set()
    queue: list[tuple[str, tuple[str, ...]]] = [(distribution, extras)]
    while queue:
        name, wanted = queue.pop()
        for requirement in map(Requirement, importlib.metadata.requires(name) or ()):
            marker = requirement.marker
            applies = marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *wanted))
            needed = canonicalize_name(requirement.name)
            if applies and needed not in found:
                found.add(needed)
                queue.append((needed, tuple(requirement.extras)))
    return found


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git lists the zoo's files")
def test_distributions_hold_every_file(tmp_path: Path) -> None:
    """The source distribution all but recipes and the links of typings/; the wheel, made from it, every module."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    files = {name for name in listed if not name.startswith((".", "packaging/", "typings/"))}
    for name in files:
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "source" / name)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(tmp_path / "source")]
    subprocess.run(command, check=True, capture_output=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        assert files <= {name.partition("/")[2] for name in archive.getnames()}
    wheel = zipfile.ZipFile(next(tmp_path.glob("*.whl")))
    check_long_description(wheel.read(next(name for name in wheel.namelist() if name.endswith("METADATA"))).decode())
    digests = Counter(hashlib.sha256(wheel.read(name)).hexdigest() for name in wheel.namelist() if "/weights/" in name)
    assert set(digests.values()) == {1}, "files of weights that are equal are stored once"
    installed = wheel.namelist()
    assert {name for name in installed if ".dist-info/" not in name} == {
        name if name.startswith("zoo/") else f"zoo/{name}"
        for name in files
        if name.startswith(("zoo/", "registry/", "converters/"))
    }


def check_long_description(metadata: str) -> None:
    """A package index shows it, and its links and pictures lead to files of this version in the repository."""
    markdown = pytest.importorskip("readme_renderer.markdown")
    fields, text = email.message_from_string(metadata), metadata.partition("\n\n")[2]
    assert fields["Description-Content-Type"].startswith("text/markdown")
    repository = dict(one.split(", ", 1) for one in fields.get_all("Project-URL"))["Repository"]
    assert f"repository-code: {repository}" in (ROOT / "CITATION.cff").read_text()
    version = f"v{fields['Version']}/"
    pictures = repository.replace("github.com", "raw.githubusercontent.com") + f"/{version}"
    for attribute, start in (("href", f"{repository}/blob/{version}"), ("src", pictures)):
        addresses = re.findall(rf'{attribute}="(.*?)"', markdown.render(text))
        local = [one.removeprefix(start).partition("#")[0] for one in addresses if one.startswith(start)]
        assert local and all((ROOT / path).exists() for path in local)
        assert [one for one in addresses if not one.startswith(("https://", "#"))] == []


def test_the_extra_all_is_all_that_users_install() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    (listed,) = re.findall(r'^all = \["transformer-zoo\[(.*)\]"\]$', project, flags=re.MULTILINE)
    (table,) = re.findall(r"^\[project.optional-dependencies\]\n(.*?)^\[", project, flags=re.DOTALL | re.MULTILINE)
    assert set(listed.split(",")) == set(re.findall(r"^(\w+) =", table, flags=re.MULTILINE)) - {"all", "dev", "tested"}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("uv") is None, reason="there is no uv")
def test_both_distributions_install_into_a_clean_environment_and_translate() -> None:
    """On one Python; `scripts/wheels` without a name takes every one."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    run = subprocess.run([ROOT / "scripts/wheels", version], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("installs and translates") == 2


def test_a_release_begins_where_all_files_have_its_version(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CITATION.cff", "CHANGELOG.md", "scripts/release"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)

    def missing(version: str) -> str:
        command = ["bash", str(tmp_path / "scripts/release"), "--facts", version]
        return subprocess.run(command, capture_output=True, text=True, check=False).stderr.strip()

    version = importlib.metadata.version("transformer-zoo")
    assert missing("9.9.9") == "not ready: pyproject.toml has another version"
    assert missing(version) == f"not ready: CHANGELOG.md has no line '## [{version}] - YYYY-MM-DD'"
    changes = tmp_path / "CHANGELOG.md"
    changes.write_text(changes.read_text().replace("## [Unreleased]", f"## [{version}] - 2026-12-01"))
    assert missing(version) == ""
    citation = tmp_path / "CITATION.cff"
    citation.write_text(citation.read_text().replace(version, "0.0.0"))
    assert missing(version) == "not ready: CITATION.cff has another version"


def supply_chain(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script on two pins."""
    (tmp_path / "scripts").mkdir(exist_ok=True)
    for name in ("scripts/supply-chain", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "constraints.txt").write_text("# Pins.\n" + "\n".join(one for one in CONSTRAINTS if "click==" in one))
    command = ["bash", str(tmp_path / "scripts/supply-chain"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def test_an_audit_that_cannot_be_made_fails_in_one_line(tmp_path: Path) -> None:
    without = supply_chain(tmp_path, PATH="/usr/bin:/bin") if shutil.which("uv", path="/usr/bin:/bin") is None else None
    if without is not None:
        assert without.returncode == 1
        install = "python3 -m pip install --upgrade pip && python3 -m pip install --group release"
        assert without.stderr == f"not ready: uv is needed: {install}\n"
    skipped = supply_chain(tmp_path, "--offline", PATH="/usr/bin:/bin")
    assert skipped.returncode == 0 and len(skipped.stdout.splitlines()) == 1 and not (tmp_path / "build").exists()


@pytest.mark.skipif(not all(map(shutil.which, ("uv", "cyclonedx-py", "pip-audit"))), reason="the tools are not here")
def test_an_audit_without_the_index_fails_in_one_line(tmp_path: Path) -> None:
    nowhere = "http://127.0.0.1:9/simple"
    failed = supply_chain(tmp_path, UV_DEFAULT_INDEX=nowhere, UV_HTTP_RETRIES="0", UV_NO_CACHE="1")
    assert failed.returncode == 1 and failed.stderr.startswith("not ready: no hashes of the pins (--offline ")
    assert len(failed.stderr.splitlines()) == 1


@pytest.mark.parametrize("status", [0, 3])
def test_an_installation_shows_progress(status: int, tmp_path: Path) -> None:
    for name in ("scripts/environment", "pyproject.toml", "setup.py", "constraints.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/activate").touch()
    printed = "Collecting\n  Downloading torch.whl (191.1 MB)\n  Downloading six.whl (11 kB)\nInstalling it: six, torch"
    pip = tmp_path / ".venv/bin/python"
    pip.write_text(f"#!/bin/sh\necho '{printed}'\nexit {status}\n")
    pip.chmod(0o755)
    run = subprocess.run(["bash", tmp_path / "scripts/environment"], capture_output=True, text=True, check=False)
    assert run.returncode == status
    assert run.stdout.splitlines()[1:3] == ["  Downloading torch.whl (191.1 MB)", "  Installing 2 packages ..."]
    assert (tmp_path / ".venv/installed").exists() is (status == 0)


def test_a_version_of_the_changelog_has_each_kind_of_change_once() -> None:
    for version in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        kinds = re.findall(r"^### (.*)", version, flags=re.MULTILINE)
        assert len(kinds) == len(set(kinds))


@pytest.mark.slow
def test_the_cold_start_is_measured() -> None:
    command = [sys.executable, str(ROOT / "scripts/bench/cold_start.py"), "--repeats", "1", "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = {row["command"]: row for row in json.loads(run.stdout)["rows"]}
    assert set(rows) == {"python -c pass", "import zoo", "zoo --help"}
    assert not any(row["heavy_imports"] for row in rows.values())


CONDA_NAMES = {"huggingface-hub": "huggingface_hub", "torch": "pytorch", "xxhash": "python-xxhash"}
RECIPE = ROOT / "packaging/conda/recipe.yaml"


@pytest.mark.skipif(not RECIPE.exists(), reason="the source distribution has no recipe")
def test_the_conda_recipe_needs_what_the_project_needs() -> None:
    recipe = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))
    listed = re.findall(r"^dependencies = \[\n(.*?)^\]", PROJECT, re.DOTALL | re.MULTILINE)[0]
    needed = [Requirement(line.strip(' ,"')) for line in listed.splitlines()]
    versions = [",".join(sorted(map(str, one.specifier), reverse=True)) for one in needed]
    wanted = {f"{CONDA_NAMES.get(one.name, one.name)} {said}" for one, said in zip(needed, versions, strict=True)}
    assert set(recipe["requirements"]["run"][1:]) == wanted and f'version = "{recipe["context"]["version"]}"' in PROJECT
    assert f'requires-python = ">={recipe["context"]["python_min"]}"' in PROJECT
    assert f'zoo = "{recipe["build"]["python"]["entry_points"][0].partition(" = ")[2]}"' in PROJECT


def test_the_tool_that_builds_is_the_pinned_one() -> None:
    """By which the same commit has the same bytes."""
    pinned = {f'"{line}"' for line in CONSTRAINTS if line.startswith("setuptools==")}
    assert pinned <= set(PROJECT.replace(",", " ").split())


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git lists the zoo's files")
def test_distributions_have_the_same_bytes_when_they_are_built_again(tmp_path: Path) -> None:
    """And the wheel is not larger than `LARGEST_WHEEL`."""
    command = [sys.executable, ROOT / "scripts/build", "--twice", "--out", tmp_path / "dist"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "built twice: the same bytes"


@pytest.mark.parametrize("script", ["release", "try-install", "wheels", "test-pythons", "supply-chain"])
def test_scripts_of_a_release_are_bash(script: str) -> None:
    subprocess.run(["bash", "-n", ROOT / "scripts" / script], check=True)
