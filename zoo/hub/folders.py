"""What of a checkpoint's folder goes to the Hub, and what it holds."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

from zoo.errors import CheckpointError, enumerate_names
from zoo.files import read_json

from .errors import UnsafeWeightsError

CONFIG, CARD = "config.json", "README.md"
WEIGHTS, INDEX = "*.safetensors", "model.safetensors.index.json"
EXPORTED_WEIGHTS = ("*.safetensors", "*.onnx", "*.gguf", "openvino_*.bin", "model.bin")
"""One of these a folder must have: weights of the zoo and transformers, ONNX, llama.cpp, OpenVINO, CTranslate2."""

PICKLES = (
    "pytorch_model*.bin",
    "*.pt",
    "*.pth",
    "*.pkl",
    "*.pickle",
    "*.ckpt",
    "*.h5",
    "*.msgpack",
    "training_args.bin",
)
"""Weights and more in formats that can run code when they are read."""

PUSHED = (
    # weights
    "*.safetensors",
    "*.safetensors.index.json",
    "*.onnx",
    "*.onnx_data",
    "*.onnx.data",
    "*.gguf",
    "openvino_*.xml",
    "openvino_*.bin",
    # configurations
    "config.json",
    "*_config.json",
    "bundle.json",
    # tokenizers
    "tokenizer.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "*vocab*.json",
    "*vocab*.txt",
    "merges.txt",
    "bpe.codes",
    "dict.txt",
    "byte_maps.json",
    "normalizer.json",
    "*.model",
    "*.spm",
    "*.jinja",
    # code, and what is known about the model
    "*.py",
    "result.json",
    "evaluations.json",
    "README.md",
    "LICENSE*",
    "NOTICE*",
    "*.png",
    "*.svg",
)
"""Names of what is pushed, from any subfolder that is not one of `LEFT_OUT`; everything else stays behind."""

PUSHED_FROM_THE_TOP = "model.bin"
"""CTranslate2's weights, by a name that elsewhere is a pickle's."""

LEFT_OUT = (".*", "checkpoint-*", "runs", "__pycache__")
"""Folders that are never pushed: hidden ones, a trainer's, caches."""

PICKLED = (b"PK", b"\x80")
"""How files begin that torch.save wrote."""

HEADER_SIZE = struct.Struct("<Q")
LONGEST_HEADER = 100_000_000


@dataclass(frozen=True)
class PushedFile:
    """A file that goes to the Hub.

    Args:
        path: Its path in the repository.
        size: Its size in bytes.
        content: Where it is, or what is in it.
    """

    path: str
    size: int
    content: Path | bytes


def files_to_push(folder: Path) -> tuple[list[PushedFile], list[str]]:
    """List what goes to the Hub of a folder.

    Args:
        folder: A checkpoint or an export.

    Returns:
        Its files that belong to a model, and the paths of all others, which stay behind; both sorted.

    Raises:
        CheckpointError: When it is no checkpoint, or a file to push is a link.
        UnsafeWeightsError: When it has no weights in a safe format.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder; push takes a model, a checkpoint's folder or an export")
    found = {
        file.relative_to(folder).as_posix(): file
        for file in sorted(folder.rglob("*"))
        if file.is_symlink() or file.is_file()
    }
    kept = [path for path, file in found.items() if _belongs_to_a_model(path, file)]
    if CONFIG not in kept:
        raise CheckpointError(f"{folder} has no {CONFIG}, so it is no checkpoint; it holds: {enumerate_names(found)}")
    if not list(filter_repo_objects(kept, allow_patterns=list(EXPORTED_WEIGHTS))):
        raise UnsafeWeightsError(
            f"{folder} has no weights that can be pushed, which are {', '.join(EXPORTED_WEIGHTS)}; it holds: "
            f"{enumerate_names(found)}"
        )
    if links := [path for path in kept if found[path].is_symlink()]:
        raise CheckpointError(
            f"{enumerate_names(links)} in {folder} would be pushed and is a link, which may lead to what is not meant "
            "to be; copy the file there instead"
        )
    check_shards(folder)
    files = [PushedFile(path, found[path].stat().st_size, found[path]) for path in kept]
    return files, sorted(found.keys() - set(kept))


def _belongs_to_a_model(path: str, file: Path) -> bool:
    *parents, name = path.split("/")
    if any(fnmatchcase(parent, pattern) for parent in parents for pattern in LEFT_OUT):
        return False
    if path == PUSHED_FROM_THE_TOP and not file.is_symlink():
        with file.open("rb") as stream:
            return not stream.read(len(PICKLED[0])).startswith(PICKLED)
    return not name.startswith(".") and any(fnmatchcase(name, pattern) for pattern in PUSHED)


def read_object(file: Path) -> dict[str, Any]:
    """Read an object from a JSON file.

    Raises:
        CheckpointError: When it is none.
    """
    try:
        content = read_json(file)
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{file} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} holds {type(content).__name__}, not an object")
    return content


def check_shards(folder: Path) -> None:
    """Require every weight file that an index names.

    Raises:
        CheckpointError: When one is missing.
    """
    index = folder / INDEX
    if index.is_file():
        shards = sorted(set(read_object(index).get("weight_map", {}).values()))
        missing = [name for name in shards if not (folder / name).is_file()]
        if missing:
            raise CheckpointError(f"{index} names files that {folder} lacks: {enumerate_names(missing)}")


def tensor_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Read names and shapes of all tensors, and nothing else, from a folder's safetensors files.

    Returns:
        The shape of every tensor, by name.

    Raises:
        CheckpointError: When a file is truncated or damaged.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob(WEIGHTS)):
        shapes.update(_header(file))
    return shapes


def _header(file: Path) -> dict[str, tuple[int, ...]]:
    try:
        with file.open("rb") as stream:
            (length,) = HEADER_SIZE.unpack(stream.read(HEADER_SIZE.size))
            if length > LONGEST_HEADER:
                raise ValueError(f"a header of {length} bytes")
            header = json.loads(stream.read(length))
        header.pop("__metadata__", None)
        end = max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
        if file.stat().st_size != HEADER_SIZE.size + length + end:
            raise ValueError(f"{file.stat().st_size} bytes instead of {HEADER_SIZE.size + length + end}")
        return {name: tuple(tensor["shape"]) for name, tensor in header.items()}
    except (struct.error, ValueError, LookupError, TypeError, AttributeError, OSError) as error:
        raise CheckpointError(f"{file} is truncated or damaged: {error}") from error
