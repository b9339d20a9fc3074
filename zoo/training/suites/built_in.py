"""The built-in suites: BLiMP, and the text-only tasks of BabyLM's evaluation that need no fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .suite import SUITES, Choice, MinimalPair, Option, Suite

BABYLM = "{} in BabyLM's evaluation_data (osf.io/ryjfm)"


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


PAIRS = "sentence_good and sentence_bad"
WORDS = "sentences between tabs and ratio"
BUILT_IN = {
    "blimp": Suite(
        "67 paradigms of 1,000 minimal pairs of English grammar",
        "BLiMP (Warstadt et al. 2020, doi:10.1162/tacl_a_00321)",
        "data/*.jsonl of github.com/alexwarstadt/blimp, or blimp_filtered/*.jsonl of BabyLM's evaluation_data",
        minimal_pair,
        PAIRS,
        folders=("blimp_filtered", "blimp_fast"),
    ),
    "blimp-supplement": Suite(
        "five paradigms of dialogue and questions, made for BabyLM",
        "BabyLM challenge (Warstadt et al. 2023, doi:10.18653/v1/2023.conll-babylm.1)",
        BABYLM.format("supplement_filtered/*.jsonl"),
        minimal_pair,
        PAIRS,
        folders=("supplement_filtered", "supplement_fast"),
    ),
    "ewok": Suite(
        "basic knowledge of the world: which of two sentences fits a context, in 11 domains",
        "EWoK (Ivanova et al. 2024, arXiv:2405.09605)",
        "ewok_filtered/*.jsonl, which babylm-eval's evaluation_pipeline.ewok.dl_and_filter writes from "
        "huggingface.co/datasets/ewok-core/ewok-core-1.0 (terms have to be accepted)",
        target_in_context,
        "Context1, Target1, Target2, Domain and ContextType",
        folders=("ewok_filtered", "ewok_fast"),
    ),
    "comps": Suite(
        "properties of concepts, and their inheritance by words that do not exist",
        "COMPS (Misra et al. 2023, doi:10.18653/v1/2023.eacl-main.213)",
        BABYLM.format("comps/*.jsonl"),
        property_of_concept,
        "prefix_acceptable, prefix_unacceptable and property_phrase",
        folders=("comps",),
    ),
    "entity-tracking": Suite(
        "what boxes contain after up to five operations, one of five answers",
        "Entity tracking (Kim and Schuster 2023, doi:10.18653/v1/2023.acl-long.213)",
        BABYLM.format("entity_tracking/*.jsonl"),
        state_after_operations,
        "input_prefix, options and numops",
        folders=("entity_tracking", "entity_tracking_fast"),
        average="phenomenon",
    ),
    "wug-adjective": Suite(
        "nouns of adjectives that do not exist, in -ity or -ness: correlation with people's choices",
        "Hofmann et al. 2024 (arXiv:2411.07990)",
        BABYLM.format("wug_adj_nominalization/*.jsonl"),
        inflected_forms,
        WORDS,
        folders=("wug_adj_nominalization",),
        measure="correlation",
    ),
    "wug-past": Suite(
        "past tenses of verbs that do not exist: correlation with people's choices",
        "Weissweiler et al. 2023 (doi:10.18653/v1/2023.emnlp-main.401)",
        BABYLM.format("wug_past_tense/*.jsonl"),
        inflected_forms,
        WORDS,
        folders=("wug_past_tense",),
        measure="correlation",
    ),
}
for _name, _suite in BUILT_IN.items():
    SUITES.register(_name, _suite)
