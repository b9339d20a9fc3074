"""The built-in suites."""

from __future__ import annotations

from .suite import SUITES, Suite

SUITES.register(
    "blimp",
    Suite(
        "67 paradigms of 1,000 minimal pairs of English grammar",
        "BLiMP (Warstadt et al. 2020, doi:10.1162/tacl_a_00321)",
        "data/*.jsonl of github.com/alexwarstadt/blimp",
    ),
)
SUITES.register(
    "blimp-supplement",
    Suite(
        "five paradigms of dialogue and questions, made for BabyLM",
        "BabyLM challenge (Warstadt et al. 2023, doi:10.18653/v1/2023.conll-babylm.1)",
        "supplement_filtered/*.jsonl of BabyLM's evaluation_data",
    ),
)
