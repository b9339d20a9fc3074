"""The job of one run, and its file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from zoo.base.files import write_json
from zoo.data.tasks import DataSource

from ..files import JOB
from ..request.seeds import DATA_SEED


@dataclass(frozen=True)
class Job:
    """One variant to train with one seed."""

    name: str  # The variant's name, as it was given
    variant: str  # The variant's name with the settings that were chosen for it
    folder: str
    tokenizer: str  # The folder of the tokenizer that all variants share
    recipe: dict[str, Any]  # How to train: the fields of `zoo.training.Recipe`
    seed: int
    hash: str = ""  # Of everything that decides its results
    settings: dict[str, Any] = field(default_factory=dict)  # Chosen settings, for reports
    seconds: float | None = None  # How long it may be trained, None where its number of updates is known
    # Operations a token of a forward pass and of training, where they have been counted; they decide nothing
    flops: tuple[float, float] | None = None
    # Whether it is one of a sweep: it is trained on a part of the training examples, and its loss is that of the others
    trial: bool = False
    data: str | None = None
    heldout: str | None = None
    columns: list[str | int] | None = None
    score: str | None = None  # The suite that decides, as for `zoo.compare`
    # Modes of fast paths where runs were asked for, apart from "auto"
    fast_paths: dict[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = ()  # Modules to import first: the user's own that register the variant or its parts
    progress: bool = True

    @property
    def source(self) -> DataSource:
        return DataSource(self.data, self.heldout, self.columns, DATA_SEED)

    @property
    def label(self) -> str:
        chosen = ", ".join(f"{key}={value}" for key, value in self.settings.items()) if self.trial else ""
        return f"{self.name}, seed {self.seed}{chosen and f', {chosen}'}"

    @property
    def file(self) -> Path:
        return Path(self.folder) / JOB

    def write(self) -> Path:
        return write_json(self.file, asdict(self))

    @classmethod
    def read(cls, file: str | Path) -> Job:
        written = json.loads(Path(file).read_text(encoding="utf-8"))
        flops = written["flops"] and tuple(written["flops"])
        return cls(**{**written, "modules": tuple(written["modules"]), "flops": flops})
