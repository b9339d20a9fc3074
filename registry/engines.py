"""Engines: names of what a model runs in, known without importing any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zoo.base.errors import InvalidChoiceError

from .table import Registry

if TYPE_CHECKING:
    from zoo.training.generation.engines import Engine

BUILT_IN = {
    "torch": "engines:IN_TORCH",
    "torch-int8": "engines:IN_TORCH_INT8",
    "onnx": "engines:IN_ONNX_RUNTIME",
    "ctranslate2": "engines:IN_CTRANSLATE2",
    "ctranslate2-int8": "engines:IN_CTRANSLATE2_INT8",
    "llama.cpp": "engines:IN_LLAMA_CPP",
    "llama.cpp-q8_0": "engines:IN_LLAMA_CPP_Q8_0",
    "openvino": "engines:IN_OPENVINO",
    "openvino-int8": "engines:IN_OPENVINO_INT8",
    "fastest": "fastest:IN_THE_FASTEST",
}
"""The library's engines, and where each is in `zoo.training.generation`."""

ENGINES: Registry[Engine] = Registry("engine", error=InvalidChoiceError, definition=type)
"""Engines that models run in, by name. Plugins may add some."""

for _name, _path in BUILT_IN.items():
    ENGINES.register_lazily(_name, f"zoo.training.generation.{_path}")
