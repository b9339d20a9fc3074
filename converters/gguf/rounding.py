"""Rounds weights to the types of ggml: by gguf where that can, else by llama.cpp itself."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ..errors import ExportError
from ..extras import require

NARROWER = {"Q6_K": "Q8_0", "Q5_K": "Q5_1", "Q4_K": "Q5_0", "Q3_K": "IQ4_NL", "Q2_K": "IQ4_NL"}
"""What llama.cpp's own tool takes for rows that 256 does not divide, of which K-quants are made: blocks of 32."""


def quantize(data: Any, kind: Any) -> Any:
    """Round rows.

    Args:
        data: An array of float32. *Shape:* (..., row)
        kind: A GGMLQuantizationType whose blocks divide a row.

    Returns:
        Bytes. *Shape:* (..., bytes of a row)

    Raises:
        ExportError: When neither gguf nor the llama.cpp that is installed writes this type.
    """
    gguf = require("gguf", "gguf")
    try:
        return gguf.quants.quantize(data, kind)
    except NotImplementedError:
        chunk = ggml_quantize_chunk(kind)
    rows = np.ascontiguousarray(data, dtype=np.float32).reshape(-1, data.shape[-1])
    block, size = gguf.GGML_QUANT_SIZES[kind]
    stored = np.empty((len(rows), rows.shape[1] // block * size), dtype=np.uint8)
    chunk(kind.value, rows.ctypes.data, stored.ctypes.data, 0, len(rows), rows.shape[1], None)
    return stored.reshape(*data.shape[:-1], -1)


def ggml_quantize_chunk(kind: Any) -> Any:
    """Find ggml's function in the library that xllamacpp is."""
    library = require("gguf", "xllamacpp.xllamacpp").__file__
    try:
        found = ctypes.CDLL(library).ggml_quantize_chunk
    except (OSError, AttributeError) as error:
        said = f"{kind.name.lower()} is written by llama.cpp alone, which cannot be asked to in {library}"
        raise ExportError(f"{said}; valid there: f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0") from error
    numbers, pointer = ctypes.c_int64, ctypes.c_void_p
    found.argtypes = (ctypes.c_int, pointer, pointer, numbers, numbers, numbers, pointer)
    found.restype = ctypes.c_size_t
    return found
