"""Qwen2 and Qwen3: as Llama, with windows layer by layer."""

from __future__ import annotations

from typing import Any

from zoo.models import ZooConfig

from ..symmetries.route import Needs
from .base import native_format
from .llama import NoFeedForwardBias, llama_classes


class Qwen(NoFeedForwardBias):
    """What Qwen2 and Qwen3 have in common: windows layer by layer."""

    def needs(self, config: ZooConfig, task: str) -> Needs:
        """Any window in any layer. Arguments as in the base class."""
        return {field: value for field, value in super().needs(config, task).items() if field != "sliding_window"}

    def read_windows(self, native: Any) -> dict[str, Any]:
        """The window of the layers that slide, if any does. Arguments as in the base class."""
        if "sliding_attention" not in native.layer_types:
            return {}
        return {"sliding_window": native.sliding_window, "layer_types": native.layer_types}

    def write_windows(self, config: ZooConfig) -> dict[str, Any]:
        """The reverse of `read_windows`. Arguments as in the base class."""
        types = config.types_of_layers()
        has_window = config.sliding_window is not None
        window = {"sliding_window": config.sliding_window} if has_window else {}
        return {"layer_types": types, "use_sliding_window": has_window, **window}


@native_format
class Qwen2(Qwen):
    """Qwen2 (Yang et al. 2024): biases on queries, keys and values."""

    name = "qwen2"
    model_types = ("qwen2",)
    classes = llama_classes("Qwen2")

    def read_biases(self, native: Any) -> dict[str, Any]:
        """Where linear layers have biases. Arguments as in the base class."""
        return {"attention_bias": True, "attention_out_bias": False, "mlp_bias": False}

    def biases_it_has(self) -> dict[str, Any]:
        """Which biases the class can have, as part of `needs`."""
        return {"attention_bias": True, "attention_out_bias": False, "mlp_bias": False}

    def write_biases(self, config: ZooConfig) -> dict[str, Any]:
        """The reverse of `read_biases`. Arguments as in the base class."""
        return {}


@native_format
class Qwen3(Qwen):
    """Qwen3 (Yang et al. 2025): queries and keys normalised head by head."""

    name = "qwen3"
    model_types = ("qwen3",)
    classes = llama_classes("Qwen3")
    variant = "qk-norm"
    qk_norm = "head"
