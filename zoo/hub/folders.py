"""Files of a folder to push: their content, and secrets in them."""

from __future__ import annotations

import logging
import mmap
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

from zoo.base.errors import CheckpointError, enumerate_names, raised_as
from zoo.base.files import files_in_index, read_object
from zoo.base.folders import EVALUATIONS_FILE, RESULT_FILE

from .errors import SecretError, UnsafeWeightsError

HUB_TOKEN = re.compile(r"\b(?:hf|api_org)_[A-Za-z0-9]{16,}")
NOISY = ("Base64 High Entropy String", "Hex High Entropy String", "Public IP (ipv4)")
"""Detectors that take hashes, vocabularies and versions for secrets."""

KEYWORDS, LONGEST_WITH_KEYWORDS = "Secret Keyword", 1 << 20
"""The slow detector of settings such as `api_key`, and the largest file in bytes that it searches: no vocabulary."""

BINARY = (".safetensors", ".onnx", ".onnx_data", ".data", ".gguf", ".bin", ".png", ".model", ".spm")
"""Endings of files that are searched for the token alone."""


def refuse_secrets(files: Iterable[PushedFile], token: str | None) -> None:
    found = [f"{file.path} ({kind})" for file in files for kind in sorted(set(_secrets(file, token)))]
    if found:
        raise SecretError(
            f"secrets would be pushed: {enumerate_names(found)}; nothing was pushed: remove them, or push them with "
            "allow_secrets=True (--allow-secrets) if they are not secret"
        )


def _secrets(file: PushedFile, token: str | None) -> Iterator[str]:
    if token and _holds(file, token.encode()):
        yield "the access token in use"
    if PurePosixPath(file.path).suffix in BINARY:
        return
    content = file.content if isinstance(file.content, bytes) else file.content.read_bytes()
    yield from known_patterns(content.decode(errors="replace"))


def _holds(file: PushedFile, token: bytes) -> bool:
    if isinstance(file.content, bytes):
        return token in file.content
    if not file.size:
        return False
    with file.content.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(token) >= 0


def known_patterns(text: str) -> Iterator[str]:
    shown_by = warnings.showwarning
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.core.scan import scan_line
    from detect_secrets.settings import transient_settings

    if warnings.showwarning is not shown_by:  # its import sends the warnings of the whole process to logging
        logging.captureWarnings(False)
    if HUB_TOKEN.search(text):
        yield "Hugging Face token"
    left_out = NOISY if len(text) <= LONGEST_WITH_KEYWORDS else (*NOISY, KEYWORDS)
    kinds: dict[str, type] = get_mapping_from_secret_type_to_class()
    detectors = [{"name": detector.__name__} for kind, detector in kinds.items() if kind not in left_out]
    with transient_settings({"plugins_used": detectors}):
        yield from (secret.type for secret in scan_line(text))


CONFIG, CARD = "config.json", "README.md"
WEIGHTS, INDEX = "*.safetensors", "model.safetensors.index.json"
EXPORTED_WEIGHTS = ("*.safetensors", "*.onnx", "*.gguf", "openvino_*.bin", "model.bin")
"""One of these a folder must have: weights of the zoo and transformers, ONNX, llama.cpp, OpenVINO, CTranslate2."""

PICKLES = (
    *("pytorch_model*.bin", "*.pt", "*.pth", "*.pkl", "*.pickle", "*.ckpt", "*.h5", "*.msgpack", "training_args.bin"),
)
"""Weights and more in formats that can run code when they are read."""

TOKENIZER = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
    *("vocab.json", "vocab.txt", "target_vocab.json", "vocab-src.json", "vocab-tgt.json", "merges.txt", "bpe.codes"),
    *("shared_vocabulary.json", "source_vocabulary.json", "target_vocabulary.json", "vocabulary.json"),
    *("dict.txt", "byte_maps.json", "normalizer.json", "emoji.json", "tokenizer.model", "spiece.model"),
    *("sentencepiece.bpe.model", "source.spm", "target.spm"),
)
"""Names of tokenizers' files: those of transformers' classes, and CTranslate2's vocabularies."""

PUSHED = {
    "": (
        # weights; CTranslate2's have a name that elsewhere is a pickle's
        *("*.safetensors", "*.safetensors.index.json", "*.onnx", "*.onnx_data", "*.onnx.data", "*.gguf"),
        *("openvino_*.xml", "openvino_*.bin", "model.bin"),
        # configurations
        *(CONFIG, "generation_config.json", "preprocessor_config.json", "processor_config.json"),
        *("adapter_config.json", "openvino_config.json", "bundle.json"),
        *TOKENIZER,
        # records, card and license
        *(RESULT_FILE, EVALUATIONS_FILE, CARD, "LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE", "NOTICE.txt"),
        *("*.png", "*.svg"),
    ),
    "target": TOKENIZER,
    "onnx": ("*.onnx", "*.onnx_data", "*.onnx.data"),
    "additional_chat_templates": ("*.jinja",),
}
"""Names of pushed files, by folder, in addition to the code that the configuration names."""

WITH_CODE = (CONFIG, "tokenizer_config.json")  # Configurations that may name code

CTRANSLATE2_WEIGHTS = "model.bin"

PICKLED = (b"PK", b"\x80")  # How files begin that torch.save wrote


@dataclass(frozen=True)
class PushedFile:
    """A file that goes to the Hub."""

    path: str
    size: int
    content: Path | bytes


def files_to_push(folder: Path) -> tuple[list[PushedFile], list[str]]:
    """Files of a folder that belong to a model, and the paths of all others, which are not pushed; both sorted."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder; push takes a model, a checkpoint's folder or an export")
    files = (file for file in sorted(folder.rglob("*")) if file.is_symlink() or file.is_file())
    found = {file.relative_to(folder).as_posix(): file for file in files}
    if CONFIG not in found:
        raise CheckpointError(f"{folder} has no {CONFIG}, so it is no checkpoint; it holds: {enumerate_names(found)}")
    code = _code_of(folder)
    kept = [path for path, file in found.items() if path in code or _belongs_to_a_model(path, file)]
    if not list(filter_repo_objects(kept, allow_patterns=list(EXPORTED_WEIGHTS))):
        problem = f"{folder} has no weights that can be pushed, which are {', '.join(EXPORTED_WEIGHTS)}"
        raise UnsafeWeightsError(f"{problem}; it holds: {enumerate_names(found)}")
    if links := [path for path in kept if found[path].is_symlink()]:
        problem = f"{enumerate_names(links)} in {folder} would be pushed and is a link"
        raise CheckpointError(f"{problem}, which may lead to what is not meant to be; copy the file there instead")
    check_shards(folder)
    pushed = [PushedFile(path, found[path].stat().st_size, found[path]) for path in kept]
    return pushed, sorted(found.keys() - set(kept))


def _belongs_to_a_model(path: str, file: Path) -> bool:
    if path == CTRANSLATE2_WEIGHTS and not file.is_symlink():
        with file.open("rb") as stream:
            return not stream.read(len(PICKLED[0])).startswith(PICKLED)
    folder, _, name = path.rpartition("/")
    return not name.startswith(".") and any(fnmatchcase(name, pattern) for pattern in PUSHED.get(folder, ()))


def _code_of(folder: Path) -> set[str]:
    """Paths of the code that the configurations name, and of what that imports from its folder."""
    maps = [read_object(folder / name).get("auto_map") for name in WITH_CODE if (folder / name).is_file()]
    entries = [entry for named in maps if isinstance(named, dict) for entry in named.values()]
    classes = [name for entry in entries for name in (entry if isinstance(entry, list) else [entry])]
    modules = {str(name).partition(".")[0] for name in classes if name and "--" not in str(name)}
    files = {folder / f"{module}.py" for module in modules if module.isidentifier()}
    if not (present := [file for file in files if file.is_file()]):
        return set()
    from transformers.dynamic_module_utils import get_relative_import_files

    unreadable = f"the code that {folder / CONFIG} names cannot be read"
    with raised_as(CheckpointError, lambda error: f"{unreadable}: {error}", OSError, ValueError):
        imported = [Path(file) for entry in present for file in get_relative_import_files(entry)]
    return {file.name for file in (*present, *imported) if file.parent == folder}


def check_shards(folder: Path) -> None:
    index = folder / INDEX
    names = files_in_index(index) if index.is_file() else []
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise CheckpointError(f"{index} names files that {folder} lacks: {enumerate_names(missing)}")
