"""Takes a tokenizer from one folder to another."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

from zoo.base.files import read_json

from ..errors import LostInputWarning
from .files import require_inside

TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
TOKENIZER_FILES = (
    TOKENIZER_FILE,
    TOKENIZER_CONFIG,
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "source.spm",
    "target.spm",
    "target_vocab.json",
    "spiece.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
)
"""Files by which a tokenizer is known, whatever its class."""

TARGET_FOLDER = "target"
"""Where a checkpoint holds its target's tokenizer, if that has its own."""


def carry_tokenizer(folder: Path, out: Path, positions: int | None = None) -> list[str]:
    """Take a checkpoint's tokenizer into another folder, where `AutoTokenizer` loads it whatever the model there is."""
    written = []
    for prefix in ("", f"{TARGET_FOLDER}/"):
        names = [file for file in TOKENIZER_FILES if (folder / prefix / file).is_file()]
        for name in names:
            require_inside(folder / prefix / name, folder)
        if not names:
            continue
        (out / prefix).mkdir(exist_ok=True)
        if not names_its_class(folder / prefix):
            names = save_again(folder / prefix, out / prefix) or names
        for name in names:
            if not (out / prefix / name).exists():
                shutil.copyfile(folder / prefix / name, out / prefix / name)
        if positions is not None and TOKENIZER_CONFIG in names:
            set_longest(out / prefix / TOKENIZER_CONFIG, positions)
        written += [f"{prefix}{name}" for name in names]
    return written


def set_longest(file: Path, positions: int) -> None:
    """Write `model_max_length` into a tokenizer's configuration, if it is one."""
    try:
        saved = read_json(file)
    except (ValueError, TypeError):
        return
    if isinstance(saved, dict):
        saved["model_max_length"] = positions
        file.write_text(json.dumps(saved, indent=2) + "\n", encoding="utf-8")


def names_its_class(folder: Path) -> bool:
    """Whether a tokenizer's own files define how to load it; if not, the model type does."""
    config = folder / TOKENIZER_CONFIG
    if not ((folder / TOKENIZER_FILE).is_file() and config.is_file()):
        return False
    try:
        return "tokenizer_class" in read_json(config)
    except (ValueError, TypeError):
        return False


def save_again(folder: Path, out: Path) -> list[str]:
    """Load a tokenizer and save it, so that its files name their class."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        return sorted({Path(file).name for file in tokenizer.save_pretrained(out) if Path(file).is_file()})
    except (ImportError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        warnings.warn(
            f"the tokenizer in {folder} cannot be loaded here ({reason}); its files are copied as they are, which "
            "AutoTokenizer may not load without the original config.json",
            LostInputWarning,
            stacklevel=3,
        )
        return []
