"""What one run is told, and how it is written down between processes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from zoo.training import Recipe

from .files import JOB, write_json


@dataclass(frozen=True)
class Job:
    """One variant to train.

    Attributes:
        name: The variant's name, with its settings.
        folder: Where its results go.
        tokenizer: The folder of the tokenizer that all variants share.
        recipe: How to train.
        seed: The seed.
        data: As for [`zoo.training.train`][].
        heldout: As for [`zoo.training.train`][].
        columns: As for [`zoo.training.train`][].
        modules: What to import first: the user's own modules that register the variant or its parts.
        progress: Whether to show progress bars.
    """

    name: str
    folder: str
    tokenizer: str
    recipe: Recipe
    seed: int
    data: str | None = None
    heldout: str | None = None
    columns: list[str | int] | None = None
    modules: tuple[str, ...] = ()
    progress: bool = True

    def write(self) -> Path:
        """Write it into its folder.

        Returns:
            The file.
        """
        return write_json(Path(self.folder) / JOB, asdict(self))

    @classmethod
    def read(cls, file: str | Path) -> Job:
        """Read what `write` wrote.

        Args:
            file: The file.

        Returns:
            The job.
        """
        written = json.loads(Path(file).read_text(encoding="utf-8"))
        return cls(**{**written, "recipe": Recipe(**written["recipe"]), "modules": tuple(written["modules"])})
