"""Takes a tokenizer from one folder to another."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from transformers import AutoTokenizer

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


def carry_tokenizer(source: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[str]:
    """Copy a checkpoint's tokenizer into another folder.

    Args:
        source: A folder or a repository on the Hub.
        out: A folder.

    Returns:
        Names of the files that were written; none where the checkpoint has no tokenizer.
    """
    folder, target = Path(source), Path(out)
    if folder.is_dir():
        names = [name for name in TOKENIZER_FILES if (folder / name).is_file()]
        for name in names:
            shutil.copyfile(folder / name, target / name)
        return names
    try:
        return [Path(path).name for path in AutoTokenizer.from_pretrained(source).save_pretrained(target)]
    except (OSError, ValueError, KeyError):
        return []
