"""Shared by the tests of exports for transformers.js: its place, and small models."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from chromium import find
from native_models import scramble

import zoo
from zoo.converters.errors import ExportError
from zoo.converters.transformers_js import page

TEXTS = ["the cat sleeps on the mat", "A dog, runs after the cat!", " two  spaces\tand"]
TEXTS += ["naïve café — déjà vu", "1\n2 🙂"]
SIZES = {"hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 24}
VOCABULARY, LENGTH = 100, 64


def library() -> Path | None:
    """The folder of npm's packages, None where transformers.js is not in it."""
    try:
        return page.find_runtime()
    except ExportError:
        return None


NPM = library()
NODE = pytest.mark.skipif(NPM is None or shutil.which("node") is None, reason="no Node, or no transformers.js 4.3")
BROWSER = pytest.mark.skipif(NPM is None or find() is None, reason="no Chromium, or no transformers.js 4.3")


def build(name: str, task: str, **settings: object) -> zoo.ZooPreTrainedModel:
    settings = {"vocab_size": VOCABULARY, "max_position_embeddings": LENGTH, **SIZES, **settings}
    return scramble(zoo.build(name, task, seed=0, **settings)).eval()
