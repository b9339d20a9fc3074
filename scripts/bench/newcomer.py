"""How long a newcomer takes from a clone, and from a wheel, to a translation, a variant and a report.

    python scripts/bench/newcomer.py            # follows docs/start.md, records the times, and writes its table
    python scripts/bench/newcomer.py --table    # writes the table from what is recorded

Each start has an empty folder, its own environment and no cache of models. uv's cache of packages is used if it exists,
so the time of an installation depends on what was downloaded before. uv must be installed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from zoo.base.files import replace_part, write_file
from zoo.base.printed import table_in_markdown
from zoo.base.processor import processor_facts

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "start.md"
RECORDED = Path(__file__).with_suffix(".json")

STEPS = ("A translation", "A variant of your own", "A comparison")
INSTALL = "uv pip install --constraint constraints.txt --editable ."
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def section(title: str) -> str:
    """The text of the page under a heading."""
    return PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def commands(title: str) -> list[str]:
    return re.findall(r"^\$ (.*)$", section(title), flags=re.MULTILINE)


def files(title: str) -> dict[str, str]:
    """The files of a section, by name."""
    return dict(re.findall(r"^`([\w.]+)`:\n\n```python\n(.*?)^```$", section(title), flags=re.DOTALL | re.MULTILINE))


def follow(folder: Path, install: str, environment: dict[str, str]) -> Iterator[tuple[str, float]]:
    """Run the commands of the page, `install` for `INSTALL`; each step with its seconds, the installation first."""
    for title in STEPS:
        for name, content in files(title).items():
            (folder / name).write_text(content, encoding="utf-8")
        for command in commands(title):
            if command.startswith("source "):
                activated = folder / ".venv"
                environment |= {"VIRTUAL_ENV": str(activated), "PATH": f"{activated}/bin:{environment['PATH']}"}
                continue
            began = time.perf_counter()
            subprocess.run(
                install if command == INSTALL else command,
                shell=True,
                cwd=folder,
                env=environment,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            yield ("Installation" if command.startswith("uv ") else title), time.perf_counter() - began


def measure() -> dict[str, Any]:
    """Follow the page from a clone and from a wheel; seconds by start and step, the machine, and how busy it was."""
    load, seconds = os.getloadavg()[0], {}
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(home / "clone")], check=True)
        subprocess.run(["uv", "build", "--quiet", "--out-dir", str(home / "wheel"), str(ROOT)], check=True)
        (wheel,) = (home / "wheel").glob("*.whl")
        for start, install in (("clone", INSTALL), ("wheel", f"uv pip install '{wheel.name}[tested]'")):
            environment = {**os.environ, "HF_HOME": f"{name}/home-{start}", "UV_PYTHON": PYTHON}
            seconds[start] = dict.fromkeys(("Installation", *STEPS), 0.0)
            for step, taken in follow(home / start, install, environment):
                seconds[start][step] += round(taken, 1)
    return {
        "seconds": seconds,
        "machine": f"{processor_facts().get('model name', platform.machine())}, {os.cpu_count()} cores",
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "python": PYTHON,
        "date": str(date.today()),
    }


def table() -> str:
    """Write the table of what is recorded, and what it was measured on."""
    if not RECORDED.exists():
        return "Nothing is recorded yet.\n"
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    seconds, (before, after) = recorded["seconds"], recorded["load"]
    rows = [
        (step, *(f"{seconds[start][step]:.0f} s" for start in ("clone", "wheel"))) for step in ("Installation", *STEPS)
    ]
    return (
        table_in_markdown(("step", "from a clone", "from a wheel"), rows)
        + f"\n\n{recorded['machine']}, Python {recorded['python']}, {recorded['date']}. Packages came from uv's cache; "
        + f"{before:g} to {after:g} processes\nwanted a core meanwhile.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="measure nothing")
    if not parser.parse_args().table:
        write_file(RECORDED, json.dumps(measure(), indent=2) + "\n")
    shown = table()
    page = PAGE.read_text(encoding="utf-8")
    write_file(PAGE, replace_part(page, "python scripts/bench/newcomer.py --table", shown))
    print(shown)


if __name__ == "__main__":
    main()
