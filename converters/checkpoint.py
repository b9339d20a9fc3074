"""Where tensors come from: a live module, a state_dict, or a file that is read without executing anything in it."""

from __future__ import annotations

import os
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers.utils import CONFIG_NAME

from zoo.base.errors import enumerate_names, first_line
from zoo.building.loading import other_content
from zoo.building.weights.locating import refuse_word
from zoo.models.wrapped import WRAPPERS

from .errors import ConversionError, NotFiniteWarning, UnsafeFileError

Source = nn.Module | Mapping[str, Tensor] | str | os.PathLike[str]  # Sources of a conversion

NESTED = ("state_dict", "model_state_dict", "model")
"""Entries of the state_dict in checkpoints of training scripts, next to an optimizer's."""


@dataclass(frozen=True)
class Checkpoint:
    """Tensors of another implementation."""

    tensors: Mapping[str, Tensor]
    module: nn.Module | None = None  # The live module they came from, if one was given
    name: str = "the given state_dict"
    owned: bool = False  # Whether the tensors have no other owner, so that they need not be copied

    @classmethod
    def of(cls, source: Source) -> Checkpoint:
        if isinstance(source, nn.Module):
            found = cls(unwrapped(source.state_dict()), source, type(source).__name__)
        elif isinstance(source, Mapping):
            found = cls(unwrapped(require_tensors(source, cls.name)))
        elif isinstance(source, str | os.PathLike):
            found = cls(unwrapped(read_file(Path(source))), name=str(source), owned=True)
        else:
            raise ConversionError(
                f"a {type(source).__name__} was given; valid: a torch module, a state_dict, a path of a file"
            )
        if not found.tensors:
            raise ConversionError(f"{found.name} holds no tensors")
        report_not_finite(found)
        return found

    @property
    def dtype(self) -> torch.dtype:
        """The type that all floating tensors fit into."""
        types = {tensor.dtype for tensor in self.tensors.values() if tensor.is_floating_point()}
        return reduce(torch.promote_types, types or {torch.get_default_dtype()})


def unwrapped(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Leave out what DataParallel and torch.compile put before every key."""
    found = dict(tensors)
    while prefix := next((one for one in WRAPPERS if found and all(key.startswith(one) for key in found)), None):
        found = {key.removeprefix(prefix): value for key, value in found.items()}
    return found


def read_file(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        refuse_word(str(path))
        raise ConversionError(f"{str(path)!r} is no file, nor a folder with a {CONFIG_NAME}{other_content(path)}")
    if path.suffix == ".safetensors":
        return dict(read_safetensors(path))
    return read_pickled(path)


def read_safetensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                yield name, file.get_tensor(name).clone()
    except (SafetensorError, OSError, ValueError) as error:
        raise ConversionError(f"{str(path)!r} is no valid safetensors file: {error}") from error


def read_pickled(path: Path, *, mmap: bool = False) -> dict[str, Tensor]:
    """Read the tensors of a file that `torch.save` wrote, and nothing else."""
    refuse_bombs(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap and zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        # torch advises first to execute what the file holds.
        reason = re.search(r"WeightsUnpickler error:\s*(.+?)(\. |\n|$)", str(error))
        fault = "is no file that torch.save wrote" if "Unsupported operand" in str(error) else "holds more than tensors"
        raise UnsafeFileError(
            f"{str(path)!r} {fault}, nothing of it was executed; save a state_dict, or give the live module "
            f"({reason[1] if reason else first_line(error)})"
        ) from error
    except (RuntimeError, EOFError, KeyError, ValueError, UnicodeDecodeError, AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.filename is not None:  # else torch looks for places that are cut off
            raise
        raise ConversionError(f"{str(path)!r} is no file that torch.save wrote: {error}") from error
    tensors = require_tensors(content, str(path))
    claims = [key for key, one in tensors.items() if one.numel() * one.element_size() > one.untyped_storage().nbytes()]
    if claims:
        raise UnsafeFileError(f"{str(path)!r} holds less data than these tensors claim: {enumerate_names(claims)}")
    return tensors


def refuse_bombs(path: Path) -> None:
    """Refuse archives that grow when they are unpacked; `torch.save` never compresses."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > path.stat().st_size or any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise UnsafeFileError(
            f"{str(path)!r} has {path.stat().st_size} bytes, {unpacked} when unpacked: torch.save does not compress"
        )


def require_tensors(content: Any, name: str) -> dict[str, Tensor]:
    """Take the state_dict out of what was given or read."""
    if isinstance(content, Mapping):
        for key in NESTED:
            if isinstance(content.get(key), Mapping):
                return require_tensors(content[key], name)
        others = [str(key) for key, one in content.items() if not (isinstance(key, str) and isinstance(one, Tensor))]
        if not others:
            return dict(content)
        raise ConversionError(f"{name} is no state_dict; these entries are no tensors: {enumerate_names(others)}")
    raise ConversionError(f"{name} is no state_dict but a {type(content).__name__}")


def report_not_finite(checkpoint: Checkpoint) -> None:
    """Warn of weights that are NaN or infinite; they are converted as they are. Refuse those in 8 bits."""
    tensors = {name: one for name, one in checkpoint.tensors.items() if not one.is_meta}
    weights = {name: one for name, one in tensors.items() if one.is_floating_point() or one.dtype is torch.int8}
    if small := [name for name, value in weights.items() if value.dtype.itemsize < 2]:
        name, dtype = small[0], str(weights[small[0]].dtype).removeprefix("torch.")
        raise ConversionError(
            f"{checkpoint.name} holds {len(small)} weights in {dtype} ({name!r} is one), which mean nothing without "
            "their scales; multiply them by these, and save them in bfloat16"
        )
    if broken := [name for name, value in weights.items() if not value.isfinite().all()]:
        message = f"{checkpoint.name} holds NaN or infinite weights: {enumerate_names(broken)}"
        warnings.warn(message, NotFiniteWarning, stacklevel=3)
