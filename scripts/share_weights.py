"""Store equal files of the weights that ship once: in zoo/building/weights/shared, called by their SHA-256.

    python scripts/share_weights.py

After `zoo weights make NAME -o zoo/building/weights/shipped/NAME`. Loading by name puts the files together again.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from zoo.base.folders import RECORD_FILE
from zoo.base.manifest import describe
from zoo.building.weights.built_in import SHIPPED
from zoo.building.weights.records import SHARED


def share(shipped: Path = SHIPPED, shared: Path = SHARED) -> list[Path]:
    """Move what several folders have, or what is shared already; the files that were moved or removed."""
    equal: dict[Path, list[Path]] = defaultdict(list)
    for file in sorted(shipped.glob("*/*")):
        if file.name != RECORD_FILE:
            equal[shared / f"{describe(file).sha256}{file.suffix}"].append(file)
    shared.mkdir(exist_ok=True)
    moved = [file for target, files in equal.items() if len(files) > 1 or target.exists() for file in files]
    for target, files in equal.items():
        for file in set(files) & set(moved):
            file.replace(target)
    return moved


if __name__ == "__main__":
    for path in share():
        print(path)
