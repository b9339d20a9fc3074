"""How graphs want to be compiled, which is stored in them."""

from __future__ import annotations

from typing import Any

OPTIONS = {"EXECUTION_MODE_HINT": "ACCURACY", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
"""Options of OpenVINO for exact numbers.

By default it computes in bfloat16 where the processor can, quantizes activations, and keeps the cache in 8 bits.
"""

STORED = "runtime_options"
"""Where a graph holds options. OpenVINO 2026.4 follows those of the cache and of activations by itself."""


def store_options(graph: Any) -> None:
    """Write the options into an `openvino.Model`."""
    for name, value in OPTIONS.items():
        graph.set_rt_info(value, [STORED, name])
