"""Trials of what this machine does well, and the fast paths that follow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

import torch

from zoo.analysis.environment import device_name
from zoo.analysis.measuring import gemm_limit
from zoo.analysis.measuring.machine import dropout_gain, int8_gain, onednn_gain
from zoo.base.errors import UnsupportedBackendError
from zoo.base.formats import installed_version
from zoo.base.processor import processor_facts
from zoo.fast import unpad_layers, unpadding
from zoo.fast.captured_steps import CAPTURE_AFTER
from zoo.fast.int8 import MANY, int8_engine
from zoo.fast.matmul import EXACT, deviation_of_onednn, onednn_pays
from zoo.fast.prepacked_linear import try_rows
from zoo.fast.switches import current
from zoo.training.generation import ENGINES, ExportEngine

PAYS = 1.2  # How many times as fast something has to be to be worth a change of precision
ROWS = (1, 8, 32)  # Texts at a time, or beams, for which linear layers of a decode step are tried

INSTRUCTIONS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimd", "sve", "bf16")
"""Of a processor's, those that decide how fast it multiplies matrices."""


@dataclass(frozen=True)
class Finding:
    """One thing that was found."""

    topic: str  # Subject
    found: str  # Result
    advice: str  # Consequence: what the zoo does, or its user may do


def examine() -> list[Finding]:
    """Examine this machine; products of matrices are timed, which takes about a second."""
    accelerators = [accelerator(index) for index in range(torch.cuda.device_count())]
    tried = [trial() for trial in (processor, threads, float32, bfloat16, int8)]
    return [*tried, *accelerators, dropout(), padding(), steps(), *engines()]


def processor() -> Finding:
    facts = processor_facts()
    flags = facts.get("flags", facts.get("Features", "")).split()
    known = [name for name in INSTRUCTIONS if name in flags]
    name = device_name(torch.device("cpu"))
    library = "MKL" if torch.backends.mkl.is_available() else "another library than MKL"
    return Finding(
        "Processor",
        f"{name}; {', '.join(known) or 'instructions unknown'}",
        f"torch uses its {torch.backends.cpu.get_cpu_capability()} code, and {library} for float32",
    )


def threads() -> Finding:
    used, cores = torch.get_num_threads(), os.cpu_count() or 1
    advice = "one for every core" if used == cores else "OMP_NUM_THREADS changes that"
    return Finding("Threads", f"{used} of {cores} cores", advice)


def float32() -> Finding:
    """How fast it multiplies at full precision, and by which of PyTorch's two libraries."""
    deviation = deviation_of_onednn()
    if current().onednn_matmul == "never":
        advice = "ZOO_ONEDNN_MATMUL=never: training multiplies by the default library"
    elif onednn_pays():
        advice = "training multiplies by oneDNN; ZOO_ONEDNN_MATMUL=never switches it off"
    elif deviation > EXACT:
        advice = "training multiplies by the default library, as oneDNN is not exact"
    else:
        advice = "training multiplies by the default library"
    found = f"{rate(gemm_limit())}; oneDNN {onednn_gain():.2f} times as fast, exact to {deviation:.0e}"
    return Finding("float32 matmul", found, advice)


def bfloat16() -> Finding:
    """Whether half the bits are faster."""
    faster = gemm_limit(dtype=torch.bfloat16) / gemm_limit()
    advice = "`--training bf16=true` pays in training" if faster > PAYS else "stay with float32"
    return Finding("bfloat16 matmul", f"{rate(gemm_limit(dtype=torch.bfloat16))}, {faster:.2f} times float32", advice)


def int8() -> Finding:
    """Speedup by int8 weights, for one token at a time and for many."""
    try:
        libraries = [int8_engine(many).name for many in (False, True)]
    except UnsupportedBackendError as error:
        return Finding("int8 matmul", "none", str(error))
    gains = [int8_gain(tokens) for tokens in (1, 2 * MANY)]
    one, many = (f"{gain:.1f} ({library})" for gain, library in zip(gains, libraries, strict=True))
    advice = "`--engine torch-int8` pays, and changes results" if max(gains) > PAYS else "stay with float32"
    return Finding("int8 matmul", f"times float32: for one token {one}, for many {many}", advice)


def accelerator(index: int) -> Finding:
    device = f"cuda:{index}"
    faster = gemm_limit(device, torch.bfloat16) / gemm_limit(device)
    advice = "training uses it, in bfloat16" if faster > PAYS else "training uses it, in float32"
    name = torch.cuda.get_device_properties(index).name
    return Finding(device, f"{name}: {rate(gemm_limit(device, torch.bfloat16))} in bfloat16, {faster:.1f} x", advice)


def dropout() -> Finding:
    """Speedup by drawing fewer random bits."""
    switch = "changes which numbers are drawn; ZOO_QUICK_DROPOUT=never switches it off"
    advice = "PyTorch's own, as ZOO_QUICK_DROPOUT or fast_paths sets" if current().quick_dropout == "never" else switch
    return Finding("Dropout", f"{dropout_gain():.1f} times as fast from 16 bits an element, on a CPU", advice)


def padding() -> Finding:
    """When padding is taken out before the layers."""
    mode = current().unpadding
    gpus = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    has_kernel = all(unpadding.has_kernel(gpu) for gpu in gpus)
    when = (
        f"on a CPU with sdpa: sequences of {unpadding.SHORT} tokens and more, "
        f"{unpad_layers.SHARE:.1%} padding and more; on a GPU in half precision: "
        + ("any" if has_kernel else f"none, as PyTorch {torch.__version__} has no kernel for it here")
        if mode == "auto"
        else f"{mode}, as ZOO_UNPADDING or fast_paths sets"
    )
    return Finding("Padding taken out", when, "changes results by rounding only; ZOO_UNPADDING=never switches it off")


def steps() -> Finding:
    """Whether decode steps are captured."""
    modes = current()
    if modes.graph_capture == "never":
        advice = "every decode step takes the whole forward"
        return Finding("Decode steps", "not captured, as ZOO_GRAPH_CAPTURE or fast_paths sets", advice)
    switch = "ZOO_GRAPH_CAPTURE=never switches that off, ZOO_PREPACKED_WEIGHTS=never the prepacking"
    advice = f"on a CPU they are captured after {CAPTURE_AFTER} of a kind, and replayed; {switch}"
    if modes.prepacked_weights == "never":
        return Finding("Decode steps", "weights not prepacked, as ZOO_PREPACKED_WEIGHTS or fast_paths sets", advice)
    gains = [try_rows(rows) for rows in ROWS]
    found = ", ".join(f"{gain.gain:.1f} for {rows}" for rows, gain in zip(ROWS, gains, strict=True))
    return Finding("Decode steps", f"times as fast with prepacked weights, by rows: {found}", advice)


def engines() -> Iterator[Finding]:
    """Which other engines can run exports."""
    for name in ENGINES:
        engine = ENGINES.get(name)
        if not (isinstance(engine, ExportEngine) and engine.exact):  # with rounded weights it is the same library
            continue
        package = engine.target.module
        if find_spec(package) is None:
            yield Finding(package, "not installed", f"pip install 'transformer-zoo[{engine.target.extra}]'")
        else:
            yield Finding(package, str(installed_version(package)), f"`zoo generate MODEL --engine {name}` runs in it")


def rate(operations: float) -> str:
    tera = 1e12
    return f"{operations / tera:.1f} TFLOP/s" if operations >= tera else f"{operations / 1e9:.0f} GFLOP/s"
