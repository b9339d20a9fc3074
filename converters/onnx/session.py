"""A graph in an engine: what goes in by name, what comes out by name, and the cache between two runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache

from zoo.base.errors import CheckpointError, InputError, first_line

from .modules import content, filled_cache

PAST, PRESENT = "past_key_values.", "present."
"""How names of keys and values begin, of inputs and of outputs."""


BRANCH = "use_cache_branch"
"""The input of graphs with two branches, as Optimum calls it: whether a cache is given."""


def is_cached(name: str) -> bool:
    """Whether a tensor's name is that of keys or values which grow with every token, unlike those of the source."""
    return name.startswith((PAST, PRESENT)) and ".encoder." not in name


class Session(ABC):
    """A graph in an engine."""

    @abstractmethod
    def run(self, given: Mapping[str, Tensor], past: Any = None) -> tuple[dict[str, Tensor], Any]:
        """Run the graph."""


class OnnxSession(Session):
    """A graph in ONNX Runtime, on as many threads as torch has. Keys and values go in and out."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        try:
            self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            # Its own exceptions have no common base but this one.
            raise CheckpointError(f"ONNX Runtime cannot load {path}: {first_line(error)}") from error

    def run(self, given: Mapping[str, Tensor], past: Any = None) -> tuple[dict[str, Tensor], DynamicCache | None]:
        names = [entry.name for entry in self.session.get_outputs()]
        cached = [entry for entry in self.session.get_inputs() if entry.name.replace(PAST, PRESENT) in names]
        if has_past := past is not None and bool(past.layers):
            pairs = content(past)
        else:
            rows = len(given["input_ids"])
            pairs = tuple(torch.zeros(rows, entry.shape[1], 0, entry.shape[3]) for entry in cached)
        known = {**given, BRANCH: torch.tensor([has_past])}
        known |= dict(zip((entry.name for entry in cached), pairs, strict=True))
        read = {entry.name: known[entry.name].contiguous().numpy() for entry in self.session.get_inputs()}
        try:
            found = self.session.run(names, read)
        except Exception as error:  # its own exceptions have no common base but this one
            raise InputError(f"ONNX Runtime refuses these inputs: {first_line(error)}") from error
        outputs = dict(zip(names, map(torch.from_numpy, found), strict=True))
        present = [outputs.pop(entry.name.replace(PAST, PRESENT)) for entry in cached]
        return outputs, filled_cache(list(zip(present[::2], present[1::2], strict=True))) if present else None


def length_of(past: Cache | None) -> int:
    """Number of positions in a cache, which may be none yet."""
    return past.get_seq_length() if past is not None else 0
