"""The page on converters has what is planned, and what was measured."""

import re
from pathlib import Path

import pytest

from zoo.converters import CONVERTERS, TARGETS
from zoo.converters.matrix import export_matrix, matrix_row, measured, obstacles_to_markdown, to_markdown, to_page
from zoo.converters.native import NATIVE
from zoo.converters.symmetries import SYMMETRIES
from zoo.converters.target import reason_of
from zoo.registry import VARIANTS, list_variants

PAGE = Path(__file__).parents[2] / "docs" / "converters.md"


def lines():
    """The rows of the table by variant and task."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = {line: line.removeprefix("| ").split(" | ") for line in rows}
    return {(found[0], found[1]): line for line, found in cells.items() if found[0] in VARIANTS}


def test_every_variant_and_task_has_its_line():
    built_in = [name for name in list_variants() if VARIANTS.origin(name).built_in]
    assert list(lines()) == [(name, task) for name in built_in for task in VARIANTS.get(name).tasks]


@pytest.mark.parametrize(
    ("variant", "task"),
    [
        ("d2l-style", "seq2seq-lm"),
        ("gpt2-style", "sequence-classification"),
        ("rezero", "causal-lm"),
        ("bert-style", "feature-extraction"),
    ],
)
def test_lines_are_what_comes_out_today(variant, task):
    row = matrix_row(variant, task)
    assert all(reason_of(obstacle) for found in row.engines.values() for obstacle in found)
    assert lines()[variant, task] == to_markdown([row]).splitlines()[-1]
    page = PAGE.read_text(encoding="utf-8")
    reasons = [line.partition(": ") for line in obstacles_to_markdown([row]).splitlines() if line.startswith("- ")]
    assert all(re.search(rf"^{re.escape(reason)}: .*\b{variant}\b", page, re.MULTILINE) for reason, _, _ in reasons)


@pytest.mark.slow
@pytest.mark.nightly
def test_the_whole_page_is_what_comes_out_today():
    rows = list(export_matrix())
    assert all(reason_of(obstacle) for row in rows for found in row.engines.values() for obstacle in found)
    assert PAGE.read_text(encoding="utf-8") == to_page(rows)


def test_differences_are_rounding():
    assert len(measured()) > 150
    # llama.cpp looks GELU up in a table of half precision.
    allowed = {"gguf": 5e-3}
    assert all(difference <= allowed.get(target, 2e-5) for (*_, target), difference in measured().items())
    assert {target for _, _, target in measured()} <= {*TARGETS, *NATIVE}


def test_the_text_is_current():
    """Everything around the tables: formats, model types, targets and symmetries."""
    page = PAGE.read_text(encoding="utf-8")
    printed, fresh = (re.sub(r"\| .*|(?s:## Refused exports, and why.*)", "", text) for text in (page, to_page([])))
    assert printed.split() == fresh.split()
    assert all(f"`{name}`" in page for name in (*CONVERTERS, *SYMMETRIES, *TARGETS))
    assert all(NATIVE.get(name).model_types[0] in page for name in NATIVE)
