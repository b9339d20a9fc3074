"""Peers made by other libraries, or by ours for another engine."""

from __future__ import annotations

import contextlib
import importlib
import tempfile
from pathlib import Path
from typing import Any

from shapes import Scale
from torch import Tensor, nn

from zoo.converters import TARGETS, EngineTarget, ExportOptions
from zoo.converters.errors import MissingExtraError
from zoo.converters.exporting import choose

STORED = ("float32", "int8", "f32", "q8_0")
"""How weights are stored that are measured: as they are, and in eight bits, by the names of the engines."""


def eager(model: Any) -> Any:
    """A copy of a native model on eager attention."""
    copy = type(model)._from_config(model.config, attn_implementation="eager")
    copy.load_state_dict(model.state_dict(), strict=False)
    return copy


def x_transformers(scale: Scale) -> nn.Module:
    """Lucidrains' encoder of the same shape; its arithmetic is its own."""
    library = importlib.import_module("x_transformers")
    layers = library.Encoder(dim=scale.width, depth=scale.layers, heads=scale.heads, attn_flash=True)
    model = library.TransformerWrapper(num_tokens=scale.vocabulary, max_seq_len=scale.lengths[0], attn_layers=layers)

    class Adapter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
            mask = None if attention_mask is None else attention_mask.bool()
            return self.model(input_ids, mask=mask, return_embeddings=True)

    return Adapter()


def in_engines(model: Any, *names: str) -> dict[str, Any]:
    """A model as exports in the engines that are installed, as it is and in eight bits, by what to call them."""
    found = {}
    for target in map(TARGETS.get, names):
        assert isinstance(target, EngineTarget)
        stored: list[str | None] = [dtype for dtype in STORED if dtype in target.dtypes]
        for dtype in stored or [None]:
            with tempfile.TemporaryDirectory() as folder, contextlib.suppress(MissingExtraError):
                target.write(model, Path(folder), choose(model, target.name), ExportOptions(dtype))
                found[f"zoo in {target.engine}, {dtype or 'float32'}"] = target.load(Path(folder))
    return found
