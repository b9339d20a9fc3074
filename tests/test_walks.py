"""How much code one use of the library runs may fall, not grow."""

import runpy
from contextlib import ExitStack
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[1] / "scripts/bench/walks.py"))
LIMITS = {
    "forward": (10, 32, 297),
    "cached step": (11, 34, 328),
    "build": (22, 80, 541),
    "load": (22, 90, 710),
    "convert": (48, 212, 1715),
}
"""Files, functions, and lines of these functions: lower a number when it falls."""


@pytest.mark.parametrize("name", LIMITS)
def test_a_walk_is_no_longer_than_before(name: str) -> None:
    with ExitStack() as files:
        walk = SCRIPT["walk_of"](SCRIPT["WALKS"][name](files))
    found = (walk.files, len(walk.functions), walk.lines_of_code)
    assert all(number <= limit for number, limit in zip(found, LIMITS[name], strict=True)), found
