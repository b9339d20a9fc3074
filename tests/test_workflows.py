"""Workflows, hooks and scripts: least permissions, pinned actions, one list of Pythons."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
pytestmark = pytest.mark.skipif(not WORKFLOWS, reason="the source distribution has no workflows")
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PINNED = re.compile(r"uses: [\w-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def read(file: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def jobs() -> dict[str, dict[str, Any]]:
    return {f"{file.stem}/{name}": job for file in WORKFLOWS for name, job in read(file)["jobs"].items()}


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_actions_are_pinned_by_hash_and_permissions_are_given_job_by_job(file: Path) -> None:
    uses = re.findall(r"uses: .*", file.read_text(encoding="utf-8"))
    assert uses and [one for one in uses if not PINNED.fullmatch(one)] == [] and read(file)["permissions"] == {}
    for job in read(file)["jobs"].values():
        assert job["permissions"] and job["timeout-minutes"]
        for step in job["steps"]:
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


def test_an_action_has_one_version() -> None:
    uses = {one for file in WORKFLOWS for one in re.findall(r"uses: (\S+)@(\S+)", file.read_text(encoding="utf-8"))}
    assert len(uses) == len({action for action, _ in uses})


def test_only_a_release_writes_and_publishing_needs_an_environment_and_no_secret() -> None:
    writing = {name for name, job in jobs().items() if job["permissions"].get("contents") == "write"}
    assert writing == {"release/page"} and jobs()["release/publish"]["environment"]["name"] == "pypi"
    assert not any("secrets." in file.read_text(encoding="utf-8") for file in WORKFLOWS)


def test_scripts_that_are_run_are_there() -> None:
    run = "\n".join(step.get("run", "") for job in jobs().values() for step in job["steps"])
    named = set(re.findall(r"(?:\.ci|scripts)/[\w-]+", run))
    assert {".ci/run", "scripts/supply-chain", "scripts/docs"} <= named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_python_that_is_announced_is_tested() -> None:
    versions = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PROJECT)
    (lowest,) = re.findall(r'^requires-python = ">=(.*)"$', PROJECT, re.MULTILINE)
    matrix = jobs()["tests/systems"]["strategy"]["matrix"]
    assert matrix["python"] == versions and versions[0] == lowest
    assert {name.partition("-")[0] for name in matrix["system"]} == {"ubuntu", "macos", "windows"}
    for script in ("wheels", "test-pythons"):
        text = (ROOT / "scripts" / script).read_text(encoding="utf-8")
        (wanted,) = re.findall(r"wanted=\(([^\"]*)\)$", text, re.MULTILINE)
        assert [word for word in wanted.split() if word.startswith("3.")] == versions
        assert f"from {versions[0]} to {versions[-1]}" in text


def test_hooks_run_what_the_suite_runs() -> None:
    hooks = read(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    suite = (ROOT / "scripts/test").read_text(encoding="utf-8")
    for words in (hook["entry"].split() for hook in hooks):
        assert " ".join(words[:2] if words[0] == "ruff" else words[:1]) in suite
    assert {hook["id"] for hook in hooks} == {"ruff-format", "ruff-check", "codespell", "mypy"}


def test_the_linter_reads_scripts_without_an_ending_as_the_hook_does() -> None:
    (named,) = re.findall(r"^extend-include = (\[.*\])$", PROJECT, re.MULTILINE)
    scripts = [file for file in (ROOT / "scripts").iterdir() if file.is_file() and not file.suffix]
    python = {f"scripts/{file.name}" for file in scripts if "python" in file.read_text("utf-8").partition("\n")[0]}
    assert set(yaml.safe_load(named)) == python


def test_spelling_is_not_read_in_what_the_commands_of_the_readme_write() -> None:
    (skipped,) = re.findall(r'^skip = """(.*?)"""$', PROJECT, re.MULTILINE | re.DOTALL)
    assert {"build", "dist", "outputs", "site"} <= set(skipped.split(","))


@pytest.mark.parametrize(
    "command",
    [["actionlint"], ["zizmor", "--offline", "--quiet", ".github"], ["pre-commit", "run", "--all-files"]],
    ids=lambda it: it[0],
)
def test_checkers_find_nothing(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKIP", "mypy")  # of hooks, which takes minutes
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
