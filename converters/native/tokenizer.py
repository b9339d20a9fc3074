"""Takes a tokenizer from one folder to another."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from transformers import AutoTokenizer

from .files import require_inside

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
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


def carry_tokenizer(source: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[str]:
    """Copy a checkpoint's tokenizer into another folder.

    Args:
        source: A folder or a repository on the Hub.
        out: A folder.

    Returns:
        Names of the files that were written; none where the checkpoint has no tokenizer.

    Raises:
        UnsafeFileError: When one of a folder's files is a link to somewhere else.
    """
    folder, target = Path(source), Path(out)
    if folder.is_dir():
        names = [
            name
            for prefix in ("", f"{TARGET_FOLDER}/")
            for file in TOKENIZER_FILES
            if (folder / (name := f"{prefix}{file}")).is_file()
        ]
        for name in names:
            require_inside(folder / name, folder)
        for name in names:
            (target / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(folder / name, target / name)
        return names
    try:
        return [
            Path(path).name
            for path in AutoTokenizer.from_pretrained(source, trust_remote_code=False).save_pretrained(target)
        ]
    except (OSError, ValueError, KeyError):
        return []
