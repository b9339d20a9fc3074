"""The table of built-in parts: complete, and read without importing them."""

import inspect
import re
from pathlib import Path

import pytest

import zoo
from zoo.models import ZooConfig
from zoo.models.parts import BUILT_IN, PART_FIELDS

PARTS = [(field, name) for field, table in PART_FIELDS.items() for name in table if table.origin(name).built_in]

ALIASES = [
    (field, name, alias)
    for field, parts in BUILT_IN.items()
    for name, *aliases in (names.split(", ") for names in parts)
    for alias in aliases
]


@pytest.mark.parametrize(("field", "name", "alias"), ALIASES)
def test_a_configuration_has_the_name_of_a_part_for_its_alias(field: str, name: str, alias: str) -> None:
    settings = {"is_decoder": True, field: alias}
    assert getattr(ZooConfig(**settings), field) == name


@pytest.mark.parametrize(("field", "name"), PARTS)
def test_a_part_is_where_the_table_has_it_and_is_described(field: str, name: str) -> None:
    table = PART_FIELDS[field]
    summary = table.summary(name)
    assert summary and summary == inspect.getdoc(table.get(name)).partition("\n")[0]


def test_the_library_registers_parts_in_the_table_alone() -> None:
    """A decorator in a module of the library would register a part only once something else imports it."""
    folder = Path(zoo.__file__).parent
    sources = {
        file: file.read_text(encoding="utf-8")
        for room in ("models", "variants")
        for file in (folder / room).rglob("*.py")
    }
    decorated = [
        file.name for file, text in sources.items() if re.search(r"^@?[A-Z_]+\.register\(", text, re.MULTILINE)
    ]
    assert decorated == []
