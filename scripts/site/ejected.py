"""Write the ejected files of docs/eject.md: python scripts/site/ejected.py."""

from __future__ import annotations

import re
from pathlib import Path

from zoo.analysis.eject.ejecting import text_of
from zoo.base.files import replace_part, write_file
from zoo.building.builder import config
from zoo.registry import VARIANTS, parse_name

PAGE = Path(__file__).parents[2] / "docs/eject.md"


def parts(page: str) -> dict[str, str]:
    """The parts of the page that are ejected files, by the command between its comments."""
    found = {}
    for command, name in re.findall(r"<!-- (zoo eject (\S+)) -->", page):
        task = VARIANTS.get(parse_name(name).name).check_task(None)
        found[command] = f"```py\n{text_of(config(name, task), task, name)}```\n"
    return found


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for command, text in parts(page).items():
        page = replace_part(page, command, text)
    write_file(PAGE, page)


if __name__ == "__main__":
    main()
