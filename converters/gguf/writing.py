"""Finds the architecture of llama.cpp that a model is, and writes it and its tokenizer as a GGUF file."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from zoo.models import ZooPreTrainedModel
from zoo.registry import Task

from ..errors import ExportError, require
from ..native.declared import NATIVE
from ..native.writing import native_weights
from ..planning import arithmetic_of, plan_export, plan_target
from ..target import Obstacle, Reason, TargetPlan, as_another, because
from ..weights import task_of, weights_of
from .architectures import ARCHITECTURES, Architecture
from .tokenizer import Entries

UNWRITTEN: Mapping[str, str] = {
    **{name: name for name in ("arcee", "cohere2", "dots1", "ernie4_5", "exaone4", "glm4", "granite", "granitemoe")},
    **{name: name for name in ("jais2", "minicpm3", "mpt", "nemotron", "olmo", "olmoe", "phi3", "qwen2", "seed_oss")},
    **{name: name for name in ("stablelm", "starcoder2")},
    "cohere": "command-r",
    "exaone_moe": "exaone-moe",
    "glm": "chatglm",
    "glm4_moe": "glm4moe",
    "glm4_moe_lite": "deepseek2",
    "gpt_bigcode": "starcoder",
    "kimi_linear": "kimi-linear",
    "minimax_m2": "minimax-m2",
    "qwen2_moe": "qwen2moe",
    "qwen3_5_text": "qwen35",
}
"""Architectures of llama.cpp that the zoo does not write, by the classes of transformers that they compute."""

OTHER_TASKS: Mapping[str, str] = {  # Obstacles for heads other than a language model's; llama.cpp has none but these
    Task.SEQ2SEQ_LM: "xllamacpp 2026.10 runs no encoder-decoders: it loads a T5 file, but its server calls no encoder "
    'and ends the process at the first request ("llama_encode must be called first")',
    Task.FEATURE_EXTRACTION: Obstacle("files for embeddings", Reason.WRITER),
    Task.SEQUENCE_CLASSIFICATION: Obstacle("files with a classifier", Reason.WRITER),
}


@dataclass(frozen=True)
class GgufPlan(TargetPlan):
    """A plan with the model's architecture in llama.cpp."""

    architecture: Architecture = ARCHITECTURES[0]


def plan_gguf(target: str, model: ZooPreTrainedModel) -> GgufPlan:
    """Find the first architecture that computes what a model does, or else the one that lacks least."""
    config, task, state = model.config, task_of(model), weights_of(model)
    if task != Task.CAUSAL_LM:
        return GgufPlan.refused(target, OTHER_TASKS.get(task, f"it has no head for {task}"))
    arithmetic, plans = arithmetic_of(config, task), list[tuple[bool, int, GgufPlan]]()
    for architecture in ARCHITECTURES:
        native = plan_target(NATIVE.get(architecture.native), config, state, task, arithmetic)
        if native.route is None:
            continue
        lacking = native.obstacles or tuple(because(Reason.SETTING, architecture.obstacles(native.route.config)))
        known = (f"llama.cpp knows it as {architecture.name}.",)
        plan = GgufPlan(target, type(model).__name__, native.route, lacking, known, architecture)
        plans.append((not native.exact, len(lacking), plan))
    differs, _, nearest = min(plans, key=lambda one: one[:2])
    if nearest.exact:
        return nearest
    # A class that computes what the model does, where the zoo writes no file of it.
    exact = [plan.target for plan in plan_export(model) if plan.exact] if differs else []
    if other := next((name for name in exact if name in UNWRITTEN), None):
        lacks = Obstacle(f"as {UNWRITTEN[other]}, llama.cpp's name of {other}", Reason.WRITER)
        return replace(nearest, obstacles=(lacks,))
    if exact:
        return replace(nearest, obstacles=(Obstacle(f"llama.cpp has no architecture like {exact[0]}", Reason.ENGINE),))
    return replace(nearest, obstacles=as_another(nearest.architecture.name, nearest.obstacles))


NARROWER = {"Q6_K": "Q8_0", "Q5_K": "Q5_1", "Q4_K": "Q5_0", "Q3_K": "IQ4_NL", "Q2_K": "IQ4_NL"}
"""Replacements of K-quants, by llama.cpp's own tool, for rows that 256 does not divide: blocks of 32."""


def quantize(data: Any, kind: Any) -> Any:
    """Bytes of rows, float32, rounded to a GGMLQuantizationType with blocks that divide a row."""
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
        message = f"{kind.name.lower()} is written by llama.cpp alone, which cannot be asked to in {library}"
        raise ExportError(f"{message}; valid there: f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0") from error
    numbers, pointer = ctypes.c_int64, ctypes.c_void_p
    found.argtypes = (ctypes.c_int, pointer, pointer, numbers, numbers, numbers, pointer)
    found.restype = ctypes.c_size_t
    return found


EXACT_PARTS = ("_norm", "position_embd", "ffn_gate_inp", "conv", ".bias")
"""Parts of names of tensors that stay in float32, as llama.cpp's own converter keeps them."""


def write_gguf(model: ZooPreTrainedModel, path: Path, plan: TargetPlan, tokenizer: Entries, dtype: str) -> None:
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
        # Of mixtures of K-quants, those that take one type nearly everywhere.
        most = f"MOSTLY_{dtype.upper()}{'_S' if dtype in ('q5_k', 'q4_k', 'q3_k') else ''}"
        writer.add_file_type(gguf.LlamaFileType["ALL_F32" if dtype == "f32" else most])
        for key, value in (*architecture.numbers(config).items(), *tokenizer.items()):
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
            nearest = min(types - {"F32"}, default="F16").lower()
            raise ExportError(
                f"{dtype} takes {block} weights of a row at a time, which divides the rows of no matrix; the nearest "
                f"is {nearest}"
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
    kinds = gguf.GGMLQuantizationType
    data = np.ascontiguousarray(tensor.float().numpy())
    wanted = kinds[dtype.upper()]
    if data.shape[-1] % gguf.GGML_QUANT_SIZES[wanted][0] and wanted.name in NARROWER:
        wanted = kinds[NARROWER[wanted.name]]
    divides = data.shape[-1] % gguf.GGML_QUANT_SIZES[wanted][0] == 0
    if tensor.ndim == 1 or not divides or any(part in name for part in EXACT_PARTS):
        wanted = kinds.F32
    return (data, wanted) if wanted == kinds.F32 else (quantize(data, wanted), wanted)
