"""Export targets: one small class each, which plans, writes and checks an export."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Self

from transformers import PreTrainedModel
from transformers.utils import CONFIG_NAME

from zoo.base.errors import CheckpointError
from zoo.models import TASK_CLASSES, ZooPreTrainedModel
from zoo.registry import Registry, Task

from .errors import ExportError, require
from .symmetries import Route
from .verification import Difference
from .weights import task_of


class Reason(Enum):
    """Where an obstacle lies, in the order in which they are named."""

    ENGINE = "the engine cannot"
    WRITER = "the zoo has no writer yet"
    SETTING = "this setting differs"


class Obstacle(str):
    """A phrase that names what keeps a model from a target, and the reason."""

    reason: Reason | None  # Where it lies; None where a plugin gives none

    def __new__(cls, phrase: str, reason: Reason | None = None) -> Obstacle:
        found = super().__new__(cls, phrase)
        found.reason = reason
        return found


def because(reason: Reason, phrases: Iterable[str]) -> list[str]:
    """Give phrases a reason, but for those that have one."""
    return [phrase if isinstance(phrase, Obstacle) else Obstacle(phrase, reason) for phrase in phrases]


def as_another(name: str, obstacles: tuple[str, ...]) -> tuple[str, ...]:
    """Obstacles of a model under the name of another one, which the first of them mentions."""
    first, *others = obstacles
    return (Obstacle(f"as {name}: {first}", getattr(first, "reason", None)), *others)


def reason_of(phrase: str) -> str:
    """The reason of an obstacle, empty without one."""
    reason: Reason | None = getattr(phrase, "reason", None)
    return reason.value if reason else ""


def explained(obstacles: Iterable[str]) -> str:
    """One line of all obstacles, grouped by their reasons."""
    grouped: dict[str, list[str]] = {reason: [] for reason in ("", *(reason.value for reason in Reason))}
    for obstacle in obstacles:
        grouped[reason_of(obstacle)].append(obstacle)
    return "; ".join(f"{reason}: {'; '.join(found)}".removeprefix(": ") for reason, found in grouped.items() if found)


PLACE = "path/to/this/folder"  # Where an export is, in the code of model cards


@dataclass(frozen=True)
class TargetPlan:
    """Whether and how a model becomes what a target holds."""

    target: str
    class_name: str | None  # The class of transformers or of the zoo, None if the model's task has none
    route: Route | None = field(repr=False)  # How settings and weights change, None where they stay or without a class
    obstacles: tuple[str, ...]  # Why not, a phrase each, best an [`Obstacle`][]; the export is exact without any
    notes: tuple[str, ...] = ()  # Remarks for users of the export

    @classmethod
    def refused(cls, target: str, obstacle: str) -> Self:
        """A plan without a class, for what the engine lacks."""
        return cls(target, None, None, tuple(because(Reason.ENGINE, [obstacle])))

    @property
    def exact(self) -> bool:
        """Whether the target expresses the model exactly."""
        return not self.obstacles

    @property
    def why_not(self) -> str:
        """All obstacles in one line, by their reasons."""
        return explained(self.obstacles)

    @property
    def transforms(self) -> tuple[str, ...]:
        """Names of the symmetries that apply."""
        return tuple(step.symmetry.name for step in self.route.steps) if self.route else ()

    @property
    def half_precision(self) -> bool:
        """Whether the exported weights can be expected to survive 16-bit floats."""
        return all(step.symmetry.half_precision for step in self.route.steps) if self.route else self.exact

    def to_dict(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "class": self.class_name,
            "exact": self.exact,
            "transforms": list(self.transforms),
            "obstacles": list(self.obstacles),
            "reasons": [reason_of(obstacle) for obstacle in self.obstacles],
            "notes": list(self.notes),
            "half_precision": self.half_precision,
        }


@dataclass(frozen=True)
class ExportOptions:
    """Options of a target."""

    dtype: str | None = None  # How weights are stored, one of the target's `dtypes`; None for its first
    source: Path | None = None  # The folder of the saved model, where its tokenizers are; None for a model in memory
    fresh_process: bool = True  # Whether the comparison runs in its own process; without, it is quicker and weaker
    page: bool = False  # Whether to add a page that runs the model in a browser, where the target has one


class Target(ABC):
    """A form that models are exported to.

    Attributes:
        name: Name for users: `zoo export --as NAME`.
        summary: Description, a phrase for the documentation.
        library: The library that loads it, for the model card.
        dtypes: How weights may be stored, first how they are by default; empty where they stay as they are.
        by_trial: Whether only exporting shows if it works.
        pages: Whether it can add a page that runs the model in a browser.
        compared_on: Inputs of the comparison.
        caveats: Known errors and unexpected defaults of its engine, with the version.
    """

    name: str
    summary: str
    library: str = "transformers"
    dtypes: ClassVar[tuple[str, ...]] = ()
    by_trial: ClassVar[bool] = False
    pages: ClassVar[bool] = False
    compared_on: ClassVar[str] = "batches (with and without padding)"
    caveats: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def plan(self, model: ZooPreTrainedModel) -> TargetPlan:
        """Whether the target expresses a model exactly, and how."""

    @abstractmethod
    def write(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> None:
        """Write a model.

        Args:
            model: A model of the zoo.
            folder: An empty folder.
            plan: The result of `plan`, without obstacles.
            options: The given options.

        Raises:
            ExportError: When it cannot be written after all.
            MissingExtraError: When what it takes is not installed.
        """

    @abstractmethod
    def check(
        self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions
    ) -> Difference | None:
        """Load what was written, and compare what it computes with what the model does.

        Raises:
            VerificationError: When it is larger than rounding explains.
        """

    def output(self, model: ZooPreTrainedModel, plan: TargetPlan) -> str:
        """Where an export returns what the model computes."""
        return "last_hidden_state" if task_of(model) == Task.FEATURE_EXTRACTION else "logits"

    def notes(self, plan: TargetPlan, options: ExportOptions) -> tuple[str, ...]:
        """Describe what users of the export should know."""
        return plan.notes

    def advice(self, task: str, options: ExportOptions) -> tuple[str, ...]:
        """Notes on what runs an export, which depends on the task."""
        return ()

    def usage(self, auto_class: str) -> str:
        """Code that loads an export with the Auto class of its task."""
        return self.load_with(auto_class)

    def sections(self, folder: Path) -> list[str]:
        """Further sections of the model card, read from what was written."""
        return []

    def stored(self, options: ExportOptions) -> str:
        """How weights are stored, one of `dtypes`."""
        return options.dtype or self.dtypes[0]

    def rounding(self, options: ExportOptions) -> str:
        """Describe how weights are stored, as the end of a note; nothing where they are not rounded."""
        dtype = options.dtype
        return "" if dtype in (None, *self.dtypes[:1]) else f" Weights are stored as {dtype}."

    def load_with(self, auto_class: str, **arguments: Any) -> str:
        """Code by which transformers loads an export, with further arguments."""
        given = "".join(f", {name}={value!r}" for name, value in arguments.items())
        code = f'from transformers import {auto_class}\n\nmodel = {auto_class}.from_pretrained("{PLACE}"{given})'
        return f"```python\n{code}\n```\n"

    def run_in(self, own: str) -> str:
        """Where the comparison ran, for instance "loaded without the zoo"; `own` is the zoo's name there."""
        return f"loaded without {own}"


VERBS: dict[str, tuple[str, ...]] = {  # Commands that run an export in its engine, by task
    Task.SEQ2SEQ_LM.value: ("generate", "evaluate"),
    Task.CAUSAL_LM.value: ("generate", "evaluate"),
    Task.MASKED_LM.value: ("evaluate",),
    Task.SEQUENCE_CLASSIFICATION.value: ("predict", "evaluate"),
    Task.TOKEN_CLASSIFICATION.value: ("predict", "evaluate"),
    Task.FEATURE_EXTRACTION.value: (),
}


class EngineTarget(Target):
    """A form for another engine, which the zoo can load again.

    Attributes:
        engine: The engine's own name.
        extra: The extra that brings it.
        module: The module that runs exports, which the extra brings.
        marks: Files that identify its exports, any one of them.
    """

    engine: ClassVar[str]
    extra: ClassVar[str]
    module: ClassVar[str]
    marks: ClassVar[tuple[str, ...]]

    @abstractmethod
    def open(self, folder: Path) -> PreTrainedModel:
        """Load an export of `write` as a model with the interface of transformers."""

    def is_in(self, folder: Path) -> bool:
        """Whether a folder holds such an export."""
        return (folder / CONFIG_NAME).is_file() and any((folder / mark).is_file() for mark in self.marks)

    def load(self, folder: Path) -> PreTrainedModel:
        """Load an exported folder.

        Raises:
            MissingExtraError: When the engine is not installed.
            CheckpointError: When the folder holds no such export, or a damaged one.
        """
        require(self.extra, self.module)
        if not self.is_in(folder):
            raise CheckpointError(
                f"{folder} holds no export for {self.engine}; `zoo export DIR -o {folder} --as {self.name}` writes one"
            )
        return self.open(folder)

    def usage(self, auto_class: str) -> str:
        """Commands that run an export; Python for features, which no command returns."""
        task = next(task for task, (name, _) in TASK_CLASSES.items() if name == auto_class)
        install = f"```bash\npip install 'transformer-zoo[{self.extra}]'\n"
        if not VERBS[task]:
            code = f'from zoo.training.generation import load_for\n\nmodel = load_for("{PLACE}")'
            return f"{install}```\n\n```python\n{code}\n```\n"
        read = {"evaluate": "--data DATA"}
        lines = "".join(f"zoo {verb} {PLACE} {read.get(verb, 'TEXT')}\n" for verb in VERBS[task])
        return f"{install}{lines}```\n"

    def advice(self, task: str, options: ExportOptions) -> tuple[str, ...]:
        """Commands that run an export, and how its weights are stored."""
        ways = [*(f"`zoo {verb}`" for verb in VERBS[task]), self.engine]
        return (f"Run it {' or '.join(f'with {way}' for way in ways)}.{self.rounding(options)}",)

    def run_in(self, own: str) -> str:
        return f"run in {self.engine}"


TARGETS: Registry[Target] = Registry("target", built_in="zoo.converters.targets", definition=type)
"""Export targets other than classes of transformers, by name. Plugins may add some."""


def check_dtype(target: Target | None, dtype: str | None) -> None:
    """Refuse a dtype that a target does not store."""
    valid = target.dtypes if target is not None else ()
    if dtype is None or dtype in valid:
        return
    if target is not None and valid:
        raise ExportError(f"dtype={dtype!r} was given; valid for {target.name}: {', '.join(valid)}")
    taking = ", ".join(name for name in TARGETS if TARGETS.get(name).dtypes)
    raise ExportError(f"dtype={dtype!r} was given; only exports to {taking} take one, others keep the model's")


def check_page(target: Target | None, page: bool) -> None:
    """Refuse a page that a target has not."""
    if page and not (target is not None and target.pages):
        having = ", ".join(name for name in TARGETS if TARGETS.get(name).pages)
        raise ExportError(f"a page was asked for; exports to {having} have one")
