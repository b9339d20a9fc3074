"""The built-in suites, which suites.yaml lists, and how the lines of their files are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from .suite import SUITES, Choice, MinimalPair, Option, Suite


def minimal_pair(file: Path, row: Mapping[str, Any]) -> MinimalPair:
    """Two sentences. Seven pairs of BLiMP are the same sentence twice, and no model is right on them."""
    named = (str(row.get(key) or "") for key in ("UID", "linguistics_term", "field"))
    paradigm, phenomenon, field = named
    good, bad = row["sentence_good"], row["sentence_bad"]
    return MinimalPair(good, bad, paradigm or file.stem, phenomenon or "other", field or "other")


def target_in_context(file: Path, row: Mapping[str, Any]) -> Choice:
    """Two sentences after a context that fits the first one."""
    targets = (Option(" " + row[key], prefix=row["Context1"]) for key in ("Target1", "Target2"))
    return Choice(tuple(targets), row["Domain"], row["Domain"], row["ContextType"])


def property_of_concept(file: Path, row: Mapping[str, Any]) -> Choice:
    """A property after two concepts; the first one has it."""
    prefixes = (row["prefix_acceptable"], row["prefix_unacceptable"])
    subset = file.stem.removeprefix("comps_").replace("-", "_")
    return Choice(tuple(Option(row["property_phrase"], prefix, " ") for prefix in prefixes), subset, subset)


def state_after_operations(file: Path, row: Mapping[str, Any]) -> Choice:
    """Contents of a box after some operations."""
    options = tuple(Option(option, prefix=row["input_prefix"]) for option in row["options"])
    return Choice(options, f"{file.stem}_{row['numops']}_ops", file.stem)


def inflected_forms(file: Path, row: Mapping[str, Any]) -> Choice:
    """Sentences with different forms of a word that does not exist, and how many people prefer the first one."""
    options = tuple(Option(text) for text in row["sentences"].split("\t"))
    return Choice(options, file.stem, file.stem, preference=float(row["ratio"]))


READERS = {
    reader.__name__: reader
    for reader in (minimal_pair, target_in_context, property_of_concept, state_after_operations, inflected_forms)
}
for _name, _suite in yaml.safe_load(Path(__file__).with_name("suites.yaml").read_text(encoding="utf-8")).items():
    SUITES.register(_name, Suite(**{**_suite, "read": READERS[_suite["read"]], "folders": tuple(_suite["folders"])}))
