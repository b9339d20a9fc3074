"""Writes a model and its tokenizer as a GGUF file."""

from __future__ import annotations

import copy
import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from zoo.models import ZooPreTrainedModel

from ..errors import ExportError
from ..extras import require
from ..native.base import NATIVE
from ..native.writing import native_weights
from ..target import TargetPlan
from ..weights import save_generation
from .files import FILE
from .planning import GgufPlan
from .rounding import NARROWER, quantize
from .tokenizer import TokenizerMetadata

EXACT_PARTS = ("_norm", "position_embd", "ffn_gate_inp", "conv", ".bias")
"""Parts of names of tensors that stay in float32, as llama.cpp's own converter keeps them."""


def write_folder(
    model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, tokenizer: TokenizerMetadata, dtype: str
) -> None:
    """Write the file, and the configuration that the zoo loads it by."""
    write_gguf(model, folder / FILE, plan, tokenizer, dtype)
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    save_generation(model, folder)


def write_gguf(
    model: ZooPreTrainedModel, path: Path, plan: TargetPlan, tokenizer: TokenizerMetadata, dtype: str
) -> None:
    """Write the file. Arguments as for `write_folder`."""
    gguf = require("gguf", "gguf")
    assert isinstance(plan, GgufPlan) and plan.route is not None
    architecture, config = plan.architecture, plan.route.config
    name = architecture.name
    kind = next(kind for kind, known in gguf.MODEL_ARCH_NAMES.items() if known == name)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    weights = architecture.rewrite(native_weights(model, NATIVE.get(architecture.native), plan.route), config)
    writer = gguf.GGUFWriter(path, name)
    types = set()
    try:
        writer.add_type("model")
        writer.add_name(model.config.variant)
        writer.add_file_type(gguf.LlamaFileType[file_type(dtype)])
        for key, value in architecture.numbers(config).items():
            getattr(writer, f"add_{key}")(value)
        for key, value in tokenizer.entries(config.vocab_size).items():
            getattr(writer, f"add_{key}")(value)
        for given, tensor in weights.items():
            # Of some classes the names are known as their bodies have them.
            spellings = (given, given.removeprefix("transformer."))
            known = (names.get_name(spelling, (".weight", ".bias")) for spelling in spellings)
            found = given if given.startswith("blk.") else next((place for place in known if place is not None), None)
            if found is None:
                raise ExportError(f"gguf has no place for {given} in its architecture {name}")
            found += "" if found == given or found.endswith((".weight", ".bias")) else ".weight"
            data, stored = in_type(tensor, found, dtype, gguf)
            types.add(stored.name)
            writer.add_tensor(found, data, raw_dtype=stored)
        if dtype.upper() not in types:
            block = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[dtype.upper()]][0]
            nearest = NARROWER.get(dtype.upper(), "F16").lower()
            raise ExportError(
                f"{dtype} takes {block} weights of a row at a time, and no matrix has rows of so many; the nearest is "
                f"{nearest}"
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    except OSError as error:
        if error.errno is None:  # numpy's, of a disk that took a part of an array
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise
    finally:
        writer.close()


def in_type(tensor: Tensor, name: str, dtype: str, gguf: Any) -> tuple[Any, Any]:
    """Round a weight."""
    kinds = gguf.GGMLQuantizationType
    data = np.ascontiguousarray(tensor.float().numpy())
    wanted = kinds[dtype.upper()]
    if data.shape[-1] % gguf.GGML_QUANT_SIZES[wanted][0] and wanted.name in NARROWER:
        wanted = kinds[NARROWER[wanted.name]]
    if (
        tensor.ndim == 1
        or data.shape[-1] % gguf.GGML_QUANT_SIZES[wanted][0]
        or any(part in name for part in EXACT_PARTS)
    ):
        wanted = kinds.F32
    return (data, wanted) if wanted == kinds.F32 else (quantize(data, wanted), wanted)


def file_type(dtype: str) -> str:
    """What llama.cpp calls files whose matrices are stored in a type."""
    if dtype == "f32":
        return "ALL_F32"
    # Of mixtures of K-quants, those that take one type nearly everywhere.
    return f"MOSTLY_{dtype.upper()}{'_S' if dtype in ('q5_k', 'q4_k', 'q3_k') else ''}"
