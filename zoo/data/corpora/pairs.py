"""Tatoeba's exports as pairs: the attribution of each row is left out of what is trained on."""

from __future__ import annotations

from pathlib import Path


def build(downloads: Path, made: Path) -> None:
    """Write the first two columns of every row.

    Args:
        downloads: Folder with one .txt file of rows: source, target, attribution.
        made: The .tsv file to write.
    """
    (rows,) = downloads.glob("*.txt")
    with rows.open(encoding="utf-8", newline="\n") as source, made.open("w", encoding="utf-8", newline="\n") as target:
        target.writelines("\t".join(line.rstrip("\n").split("\t")[:2]) + "\n" for line in source)
