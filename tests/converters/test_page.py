"""The page on converters says what is measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from zoo.converters import CONVERTERS
from zoo.converters.matrix import matrix_row, to_markdown
from zoo.converters.native import NATIVE
from zoo.converters.page import to_page
from zoo.converters.symmetries import SYMMETRIES
from zoo.registry import VARIANTS, list_variants

PAGE = Path(__file__).parents[2] / "docs" / "converters.md"
NUMBER = re.compile(r"(?<![\w.])\de[+-]\d+\b")


def lines():
    """The rows of the table: cells by variant and task."""
    rows = (line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| "))
    return {(cells[0].removeprefix("| "), cells[1]): cells for cells in rows if cells[0].removeprefix("| ") in VARIANTS}


def test_every_variant_and_task_has_its_line():
    built_in = [name for name in list_variants() if VARIANTS.origin(name).built_in]
    assert list(lines()) == [(name, task) for name in built_in for task in VARIANTS.get(name).tasks]


@pytest.mark.parametrize(
    ("variant", "task"),
    [("d2l-style", "seq2seq-lm"), ("gpt2-style", "sequence-classification"), ("rezero", "causal-lm")],
)
def test_lines_are_what_comes_out_today(variant, task):
    """All but the numbers, which depend on the machine, and ONNX, which takes long."""
    fresh = to_markdown([matrix_row(variant, task)]).splitlines()[-1].split(" | ")
    printed = lines()[variant, task]
    assert [NUMBER.sub("#", cell) for cell in printed[:-1]] == [NUMBER.sub("#", cell) for cell in fresh[:-1]]


def test_differences_are_rounding():
    numbers = [float(number) for cells in lines().values() for cell in cells for number in NUMBER.findall(cell)]
    assert len(numbers) > 50
    assert max(numbers) <= 2e-5


def test_the_text_is_current():
    """Everything around the table: formats, model types and symmetries."""
    page = PAGE.read_text(encoding="utf-8")
    printed, fresh = (re.sub(r"in\nthat run:.*?\.\n|\| .*", "", text, flags=re.DOTALL) for text in (page, to_page([])))
    assert printed.split() == fresh.split()
    assert all(f"`{name}`" in page for name in (*CONVERTERS, *SYMMETRIES))
    assert all(NATIVE.get(name).model_types[0] in page for name in NATIVE)
