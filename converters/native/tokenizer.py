"""Takes a tokenizer from one folder to another."""

from __future__ import annotations

import shutil
from pathlib import Path

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


def carry_tokenizer(folder: Path, out: Path) -> list[str]:
    """Copy a checkpoint's tokenizer into another folder.

    Args:
        folder: The checkpoint.
        out: A folder.

    Returns:
        Names of the files that were written; none where the checkpoint has no tokenizer.

    Raises:
        UnsafeFileError: When one of the files is a link to somewhere else.
    """
    names = [
        name
        for prefix in ("", f"{TARGET_FOLDER}/")
        for file in TOKENIZER_FILES
        if (folder / (name := f"{prefix}{file}")).is_file()
    ]
    for name in names:
        require_inside(folder / name, folder)
    for name in names:
        (out / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(folder / name, out / name)
    return names
