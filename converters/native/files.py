"""Files of a native checkpoint and its tokenizer: one at a time, nothing executed, nothing outside of the folder."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers.utils import (
    CHAT_TEMPLATE_DIR,
    CONFIG_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
    WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME,
)

from zoo.base.errors import first_line
from zoo.base.files import read_json, read_mapping
from zoo.base.folders import TARGET_FOLDER, TOKENIZER_FILE
from zoo.hub.addresses import is_repository

from ..checkpoint import read_pickled, read_safetensors
from ..errors import ConversionError, ExportError, LostInputWarning, UnsafeFileError

TOKENIZER_CONFIG = "tokenizer_config.json"
TOKENIZER_FILES = (  # Files by which a tokenizer of any class is recognised
    *(TOKENIZER_FILE, TOKENIZER_CONFIG, "special_tokens_map.json", "added_tokens.json", "vocab.txt", "vocab.json"),
    *("merges.txt", "chat_template.jinja", "source.spm", "target.spm", "target_vocab.json", "spiece.model"),
    *("tokenizer.model", "sentencepiece.bpe.model"),
)


def carry_tokenizer(folder: Path, out: Path, positions: int | None = None) -> list[str]:
    """Take a checkpoint's tokenizer into another folder, where `AutoTokenizer` loads it with any model."""
    written = []
    for prefix in ("", f"{TARGET_FOLDER}/"):
        names = [file for file in TOKENIZER_FILES if (folder / prefix / file).is_file()]
        named = (folder / prefix / CHAT_TEMPLATE_DIR).glob("*.jinja")
        names += sorted(path.relative_to(folder / prefix).as_posix() for path in named)
        for name in names:
            require_inside(folder / prefix / name, folder)
        if not names:
            continue
        (out / prefix).mkdir(exist_ok=True)
        tokenizer = load_tokenizer(folder / prefix)
        names_its_class = "tokenizer_class" in read_mapping(folder / prefix / TOKENIZER_CONFIG)  # else the model does
        if tokenizer is not None and not ((folder / prefix / TOKENIZER_FILE).is_file() and names_its_class):
            files = {Path(file) for file in tokenizer.save_pretrained(out / prefix)}
            names = sorted(file.relative_to(out / prefix).as_posix() for file in files if file.is_file())
        for name in names:
            if not (out / prefix / name).exists():
                (out / prefix / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(folder / prefix / name, out / prefix / name)
        if TOKENIZER_CONFIG in names:
            longest = {} if positions is None else {"model_max_length": positions}
            complete(out / prefix / TOKENIZER_CONFIG, tokenizer, longest)
        written += [f"{prefix}{name}" for name in names]
    return written


def complete(file: Path, tokenizer: Any, settings: dict[str, Any]) -> None:
    """Write settings into a tokenizer's configuration, and what its class implies: a model's type may replace that."""
    from transformers import PreTrainedTokenizerFast
    from transformers.models.auto.tokenization_auto import tokenizer_class_from_name

    try:
        saved = dict(read_json(file))
    except (ValueError, TypeError):
        return
    if tokenizer is not None:
        if tokenizer_class_from_name(str(saved.get("tokenizer_class"))) is not type(tokenizer):
            settings = {**settings, "tokenizer_class": type(tokenizer).__name__}
        for name in ("padding_side", "model_input_names"):
            if name not in saved and getattr(tokenizer, name) != getattr(PreTrainedTokenizerFast, name):
                settings = {**settings, name: getattr(tokenizer, name)}
    if settings:
        file.write_text(json.dumps({**saved, **settings}, indent=2) + "\n", encoding="utf-8")


def load_tokenizer(folder: Path) -> Any:
    """Load a tokenizer; None, with a warning, for one that cannot be loaded here."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (ImportError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        warnings.warn(
            f"the tokenizer in {folder} cannot be loaded here ({first_line(error)}); its files are copied as they are, "
            "which AutoTokenizer may not load without the original config.json",
            LostInputWarning,
            stacklevel=3,
        )
        return None


def require_same_tokens(folder: Path, out: Path) -> None:
    """Require that an exported tokenizer makes the tokens of the original, also next to another type of model."""
    for prefix in ("", TARGET_FOLDER):
        if not (out / prefix / TOKENIZER_FILE).is_file():
            continue
        ours, theirs = load_tokenizer(folder / prefix), load_tokenizer(out / prefix)
        for text in AWKWARD if ours is not None else ():
            if theirs is None or ours(text)["input_ids"] != theirs(text)["input_ids"]:
                raise ExportError(
                    f"next to this model, AutoTokenizer makes a {type(theirs).__name__} of the tokenizer, with other "
                    f"tokens of {text!r}; export to another class, or leave the tokenizer out"
                )


AWKWARD = (  # Texts that tokenizers often treat differently
    "Hello, world!",
    " two  spaces",
    "a\n\nb\tc \n",
    "It's 12345.67 (or 8-9)?",
    "don't, we'll; they've",
    "éàü ñ ç naïve Ünïcödé 漢字かな ٣٤٥",
    "🙂👩\u200d👧",
    "   ",
    "\r\n",
    "x=y+z*2; http://a.b/c?d=e&f",
    "«Olá», disse ele.",
)

INDEXES = {SAFE_WEIGHTS_NAME: SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_NAME: WEIGHTS_INDEX_NAME}
"""Names of weights in one file, and of the index of several files."""

SHARED = ".huggingface-shared-blobs"  # By which the Hub's cache marks the folder of blobs that its repositories share

FILE_ENDINGS = (".pt", ".pth", ".bin", ".safetensors")
"""By which the name of a file that is missing differs from a repository's."""


def is_checkpoint(source: str | os.PathLike[str]) -> bool:
    """Whether a checkpoint of transformers is meant rather than a file of weights."""
    if (Path(source) / CONFIG_NAME).is_file():
        return True
    return is_repository(str(source)) and Path(source).suffix not in FILE_ENDINGS


def folder_of(source: str | os.PathLike[str]) -> Path:
    """Find the folder of a checkpoint: a repository is pulled."""
    from zoo.building.weights import locate

    return locate(str(source) if isinstance(source, Path) else source, with_pickles=True)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read all weights of a checkpoint, file by file: no more than one of them is mapped into memory at a time."""
    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder):
        for name, tensor in tensors_of(path):
            if name in tensors:
                raise ConversionError(f"{path} holds {name!r}, which another file of the checkpoint holds as well")
            tensors[name] = tensor
    return tensors


def weight_files(folder: Path) -> list[Path]:
    for whole, index in INDEXES.items():
        if (path := find(folder, whole)) is not None:
            return [path]
        if (path := find(folder, index)) is not None:
            return [member(folder, name, path) for name in names_in(path)]
    raise ConversionError(f"{str(folder)!r} has none of {', '.join((*INDEXES, *INDEXES.values()))}")


def find(folder: Path, name: str) -> Path | None:
    path = folder / name
    return require_inside(path, folder) if path.exists() or path.is_symlink() else None


def names_in(index: Path) -> list[str]:
    try:
        names = sorted(set(read_json(index)["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConversionError(f"{str(index)!r} is no valid index of weight files") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or "\\" in name or name in ("", ".", ".."):
            raise UnsafeFileError(f"{str(index)!r} names {name!r}, which is not a file of its own folder")
    return names


def member(folder: Path, name: str, index: Path) -> Path:
    path = find(folder, name)
    if path is None or not path.is_file():
        raise ConversionError(f"{str(index)!r} names {name!r}, which is not there")
    return path


def require_inside(path: Path, folder: Path) -> Path:
    """Refuse links that lead out of a folder, except those of snapshots in the Hub's cache, which link to blobs."""
    real, home = path.resolve(), folder.resolve()
    allowed = [home]
    if home.parent.name == "snapshots":
        repository, cache = home.parents[1], home.parents[2]
        allowed.append(repository / "blobs")
        if (cache / "blobs" / SHARED).is_file():
            allowed.append(cache / "blobs")
    if not any(real.is_relative_to(place) for place in allowed):
        raise UnsafeFileError(f"{str(path)!r} is a link out of its folder; copy the file there if it is yours")
    return path


def tensors_of(path: Path) -> Iterator[tuple[str, Tensor]]:
    if path.suffix == ".safetensors":
        yield from read_safetensors(path)
        return
    pickled, shared = read_pickled(path, mmap=True), dict[Any, Tensor]()
    for name in list(pickled):
        tensor = pickled.pop(name)
        storage = (tensor.untyped_storage().data_ptr(), tensor.storage_offset())
        place = (storage, tensor.shape, tensor.stride())  # of a square matrix, a transpose has the same shape
        if place not in shared:
            shared[place] = tensor.clone()
        yield name, shared[place]
