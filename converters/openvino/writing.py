"""Writes a model as OpenVINO graphs: traced as for ONNX, and read from there."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import Any

from zoo.base.errors import UnwritableError
from zoo.base.folders import scratch_folder
from zoo.models import ZooPreTrainedModel

from ..errors import ExportError, require
from ..onnx.files import GRAPH_ENDING as ONNX_ENDING
from ..onnx.writing import write_graphs, write_settings
from .files import GRAPH_ENDING, PREFIX
from .stateful import check_rows, keep_cache, store_options


def write_openvino(model: ZooPreTrainedModel, folder: Path, dtype: str) -> None:
    """Write configuration and graphs."""
    require("openvino", "openvino", "onnx", "onnxscript")
    if dtype == "int8":
        # By this NNCF sends no report of its use.
        os.environ.setdefault("NNCF_CI", "1")
        require("nncf", "nncf")
    with scratch_folder() as scratch:
        write_graphs(model, scratch)
        for path in sorted(scratch.glob(f"*{ONNX_ENDING}")):
            graph = read(path, model.config.variant)
            keep_cache(graph)
            check_rows(graph)
            if dtype == "int8":
                graph = rounded(graph)
            store_options(graph)
            save(graph, folder / f"{PREFIX}{path.stem}{GRAPH_ENDING}", half=dtype == "float16")
    write_settings(model, folder)


def read(path: Path, variant: str) -> Any:
    """Translate a graph of ONNX."""
    import openvino

    try:
        # Not by `openvino.convert_model`, which sends a report of its use.
        return openvino.Core().read_model(str(path))
    except RuntimeError as error:
        last = str(error).strip().splitlines()[-1]
        raise ExportError(f"OpenVINO cannot hold {path.stem} of variant {variant!r}: {last}") from error


def rounded(graph: Any) -> Any:
    """Round the weights of a graph to int8, with a scale and a zero for every row."""
    import nncf

    nncf.set_log_level(logging.ERROR)
    with contextlib.redirect_stdout(sys.stderr):  # for its progress bar
        return nncf.compress_weights(graph)


def save(graph: Any, path: Path, *, half: bool = False) -> None:
    """Write a graph and its weights."""
    import openvino

    try:
        openvino.save_model(graph, str(path), compress_to_fp16=half)
    except RuntimeError as error:
        # Its message has only the failure of its stream.
        raise UnwritableError(f"{path} cannot be written; is the disk full? ({error})") from error
