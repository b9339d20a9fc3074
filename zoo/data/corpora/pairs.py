"""Tatoeba's exports as pairs: the attribution of each row is left out of what is trained on."""

from __future__ import annotations

from pathlib import Path


def build(downloads: Path, made: Path) -> None:
    """Write the first two columns of every row of a .txt file of source, target and attribution into a .tsv file."""
    (rows,) = downloads.glob("*.txt")
    with rows.open(encoding="utf-8", newline="\n") as source, made.open("w", encoding="utf-8", newline="\n") as target:
        target.writelines("\t".join(line.rstrip("\n").split("\t")[:2]) + "\n" for line in source)
