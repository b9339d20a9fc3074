"""Weights: trained checkpoints by name, and what is known about each."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from zoo.base.errors import RegistrationError, UnknownWeightsError

from .names import is_word, matching, require_task
from .table import Registry
from .variants import VARIANTS

SMALL = 10  # Below which a score is a loss or a perplexity rather than a percentage
HUB = "hf-hub:"  # Prefix of a source on the Hugging Face Hub


@dataclass(frozen=True)
class FileDigest:
    """Expected contents of a file."""

    size: int  # In bytes
    sha256: str  # In hexadecimal digits


@dataclass(frozen=True)
class RecordedScore:
    """A score that weights had when they were made."""

    name: str  # Name of the score, e.g. "BLEU"
    value: float
    # Its 95 % confidence interval over the held-out examples, None where it has none
    interval: tuple[float, float] | None = None
    signature: str = ""  # How it was computed

    def __str__(self) -> str:
        """The value, rounded as in every report."""
        return f"{self.value:.{digits(self.value)}f}"

    @property
    def interval_text(self) -> str:
        """The interval to the same digits; empty without one."""
        return " to ".join(f"{bound:.{digits(self.value)}f}" for bound in self.interval or ())


def digits(value: float) -> int:
    """Number of digits of a score after the point."""
    return 1 if abs(value) >= SMALL else 3


@dataclass(frozen=True)
class Weights:
    """A trained checkpoint, and what is known about it.

    Attributes:
        name: VARIANT.TAG, e.g. "vanilla.en-pt".
        source: Where the files are: a folder, or "hf-hub:org/name@revision".
        summary: Purpose, in a line.
        task: Task of the model, e.g. "seq2seq-lm".
        license: The SPDX identifier of the weights' licence.
        data: Training data.
        data_license: The SPDX identifier of the data's licence.
        tokenizer: Kind of tokenizer, in a few words.
        recipe: The recipe that it was trained by, None where that is not one of the zoo's.
        command: The command that trained it, without its output folder.
        seed: The seed of weights, dropout and data.
        versions: The versions of what trained it, by distribution.
        num_parameters: Number of parameters.
        dtype: How the files store weights.
        scores: The scores that it had, by key, on the held-out examples of its training.
        fingerprint: Logits on a fixed input, which show whether the code still computes the same.
        limits: Known errors, in a sentence.
        parent: Initial weights of its training, if not random: weights by name, a folder or a repository.
        files: Expected contents of every file by its path. Of a repository, the Hub's checksums are used.
        generation: How it writes by default: fields of transformers' `GenerationConfig`.
    """

    name: str
    source: str
    summary: str
    task: str
    license: str
    data: str = ""
    data_license: str = ""
    tokenizer: str = ""
    recipe: str | None = None
    command: tuple[str, ...] = ()
    seed: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    num_parameters: int | None = None
    dtype: str | None = None
    scores: Mapping[str, RecordedScore] = field(default_factory=dict)
    fingerprint: tuple[float, ...] = ()
    limits: str = ""
    parent: str | None = None
    files: Mapping[str, FileDigest] = field(default_factory=dict)
    generation: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        variant, dot, tag = self.name.partition(".")
        if not (dot and is_word(variant) and is_word(tag)):
            raise RegistrationError(f"weights were called {self.name!r}; valid: VARIANT.TAG, e.g. 'vanilla.en-pt'")
        require_task(self.task)

    @property
    def variant(self) -> str:
        return self.name.partition(".")[0]

    @property
    def tag(self) -> str:
        """Tag that distinguishes them from other weights of the variant."""
        return self.name.partition(".")[2]

    @property
    def on_hub(self) -> bool:
        """Whether the files are on the Hugging Face Hub."""
        return self.source.startswith(HUB)

    @property
    def size(self) -> int | None:
        """Size of all files in bytes, None where it is not known."""
        return sum(file.size for file in self.files.values()) or None

    @property
    def command_line(self) -> str:
        return " ".join(self.command)


WEIGHTS: Registry[Weights] = Registry("weights", built_in="zoo.building.weights.built_in", error=UnknownWeightsError)
"""All weights, by name."""


def register_weights(weights: Weights, *, override: bool = False) -> None:
    """Register weights, so that their name works wherever a folder does.

    Args:
        weights: The weights. `zoo.building.weights.read_record` reads them from a folder that `zoo weights make` wrote.
        override: Whether they may take the name of others.

    Raises:
        NameCollisionError: When the name is taken. The message names the owner.
    """
    module = sys._getframe(1).f_globals.get("__name__", "__main__")
    WEIGHTS.register(weights.name, weights, override=override, module=module)


def find_weights(name: str, tag: str | None = None) -> Weights:
    """Look weights up.

    Args:
        name: Their name; with a tag, the variant's name or an alias of it.
        tag: Distinguishes them from other weights of the variant.

    Raises:
        UnknownWeightsError: When no weights have this name; it lists the variant's weights, if any.
        UnknownVariantError: When a tag is given and the variant is unknown.
    """
    given = name if tag is None else f"{name}.{tag}"
    variant, _, rest = given.partition(".")
    if tag is None and variant not in VARIANTS:
        return WEIGHTS.get(given)
    variant = VARIANTS.canonical(variant)
    found = f"{variant}.{rest}"
    if found not in WEIGHTS and (known := list_weights(f"{variant}.*")):
        raise UnknownWeightsError(given, known, owner=f"variant {variant!r}")
    return WEIGHTS.get(found)


def is_weights_name(text: str) -> bool:
    """Whether a text is the name of weights, or has the form of one with a known variant or tag."""
    variant, dot, tag = text.partition(".")
    if not (dot and is_word(variant) and is_word(tag)):
        return False
    return text in WEIGHTS or variant in VARIANTS or any(name.partition(".")[2] == tag for name in WEIGHTS.names())


def list_weights(pattern: str | Iterable[str] = "*", task: str | None = None) -> list[str]:
    """List weights.

    Args:
        pattern: A name with wildcards ("*.en-pt"), or several; one must match. A pattern that begins with "!"
            leaves out what it matches.
        task: Only weights of models for this task.

    Returns:
        The names, sorted.

    Raises:
        UnknownTaskError: When the task is unknown.
    """
    wanted = None if task is None else require_task(task)
    return [name for name in matching(WEIGHTS.names(), pattern) if wanted in (None, WEIGHTS.get(name).task)]
