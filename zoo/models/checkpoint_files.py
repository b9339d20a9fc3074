"""Files of a saved checkpoint: its weight files, and whether the configuration describes them."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_utils import LoadStateDictConfig, _add_variant, load_state_dict
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, logging
from transformers.utils.loading_report import LoadStateDictInfo

from zoo.base.errors import CheckpointError, OtherSizesError, ZooError, enumerate_names
from zoo.base.files import files_in_index

IN_FLOAT32 = ("balance_bias",)  # Buffers that are built, stored and loaded in float32 in a model of 16 bits


def weight_files(folder: Path, variant: str | None = None) -> list[Path]:
    """List the safetensors files of a checkpoint, or of one that was saved with transformers' `variant`."""
    index, only = (folder / _add_variant(name, variant) for name in (SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME))
    if not index.is_file():
        return [only]
    names = files_in_index(index)
    return [only] if only.is_file() else [folder / name for name in names]


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Hide transformers' progress bars while files are read or written."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def read_errors(source: Any) -> Iterator[None]:
    """Turn errors of transformers and safetensors while reading into a one-line CheckpointError."""
    try:
        yield
    except SafetensorError as error:
        raise CheckpointError(f"the weights of {source} are truncated or damaged: {error}") from error
    except OSError as error:
        if isinstance(error, ZooError) or error.errno is not None:  # an errno comes from the operating system
            raise
        raise CheckpointError(" ".join(str(error).split())) from error


def refuse_other_sizes(model: PreTrainedModel, mismatched: Iterable[tuple[str, Any, Any]]) -> None:
    shapes = (
        f"{name} is {list(saved)} in the file, {list(built)} in the model" for name, saved, built in sorted(mismatched)
    )
    raise OtherSizesError(
        f"the weights do not fit the {type(model).__name__} that the configuration describes: "
        f"{enumerate_names(shapes)}; ignore_mismatched_sizes=True reinitialises them"
    )


def saved_shapes(files: Iterable[Path]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of weights in files; raises CheckpointError if one is missing or damaged."""
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        if not file.is_file():
            raise CheckpointError(f"{file.parent} has no {file.name}; weights are read from safetensors files only")
        try:
            with safe_open(file, framework="pt") as opened:
                shapes |= {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{file} is truncated or damaged: {error}") from error
    return shapes


@dataclass
class Expected:
    """Weights that a checkpoint has, which the model of a `from_pretrained` must be described by."""

    folder: Path
    shapes: dict[str, tuple[int, ...]]
    is_checked: bool = False  # Whether a model was compared with them


EXPECTED: ContextVar[Expected | None] = ContextVar("EXPECTED", default=None)


@contextmanager
def checked_before_reading(folder: Path, shapes: dict[str, tuple[int, ...]]) -> Iterator[Expected]:
    """Let `from_pretrained` compare the model that it has built, before it reads weights, with these shapes."""
    expected = Expected(folder, shapes)
    token = EXPECTED.set(expected)
    try:
        yield expected
    finally:
        EXPECTED.reset(token)


def check_described(model: PreTrainedModel, shapes: dict[str, tuple[int, ...]], folder: Path) -> None:
    """Require weights to be those that a configuration describes, with the same names and shapes."""
    wanted = model.state_dict(keep_vars=True)
    spellings: dict[int, list[str]] = {}
    for name, tensor in wanted.items():
        spellings.setdefault(id(tensor), []).append(name)
    what = f"of the {type(model).__name__} that its config.json describes"
    if missing := [names[0] for names in spellings.values() if not any(name in shapes for name in names)]:
        raise CheckpointError(f"{folder} lacks weights {what}: {enumerate_names(missing)}")
    if others := sorted(shapes.keys() - wanted.keys()):
        raise CheckpointError(f"{folder} holds weights that are not those {what}: {enumerate_names(others)}")
    for name, shape in shapes.items():
        if tuple(wanted[name].shape) != shape:
            raise CheckpointError(
                f"{folder} holds other weights than those {what}: {name} has shape {list(shape)} in the file, "
                f"{list(wanted[name].shape)} by the configuration"
            )


def assign_weights(model: PreTrainedModel, files: Sequence[str], how: LoadStateDictConfig) -> LoadStateDictInfo | None:
    """Give a model the weights of its files as they are, without the moves, casts and renames of transformers' loading.

    Returns which are missing; None, and the model is as before, where weights have other names, shapes or types than
    those of the model, which is on the meta device, or have to be moved, converted or quantised.
    """
    moves = how.device_map is not None or how.device_mesh is not None or how.disable_mmap is not None
    if moves or how.hf_quantizer is not None or how.dtype_plan.keys() - IN_FLOAT32 or sys.platform == "win32":
        return None
    weights = {name: weight for file in files for name, weight in load_state_dict(file).items()}
    wanted = model.state_dict(keep_vars=True)
    for name, weight in weights.items():
        hollow = wanted.get(name)
        if hollow is None or not hollow.is_meta or (hollow.shape, hollow.dtype) != (weight.shape, weight.dtype):
            return None
        if any(change.rename_source_key(name)[0] != name for change in how.weight_mapping or ()):
            return None
    modules = dict(model.named_modules(remove_duplicate=False))
    for name, weight in weights.items():
        place, _, attribute = name.rpartition(".")
        is_parameter = isinstance(wanted[name], nn.Parameter)
        loaded: Any = nn.Parameter(weight, requires_grad=weight.is_floating_point()) if is_parameter else weight
        loaded._is_hf_initialized = True
        setattr(modules[place], attribute, loaded)
    model._weight_conversions = []
    missing = wanted.keys() - weights.keys()
    none: dict[str, Any] = {"unexpected_keys": set(), "mismatched_keys": set(), "skipped_pp_keys": set()}
    return LoadStateDictInfo(missing_keys=missing, error_msgs=[], conversion_errors={}, **none)
