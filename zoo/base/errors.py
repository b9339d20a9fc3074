"""Every error the zoo raises on purpose, and the nearest match that they name.

Catch `ZooError` to catch them all. Each message is one line: what was given, what is valid, the nearest match.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from zoo.base.synonyms import translate

MOST_NAMES_SHOWN = 16  # How many valid names a message lists before it only counts them


def nearest(given: str, valid: Iterable[str]) -> str | None:
    """Find the valid name that `given` was probably meant to be."""
    import difflib

    by_spelling = {_spelling(name): name for name in sorted(valid, reverse=True)}
    wanted = _spelling(given)
    if not wanted:
        return None
    begun = [name for name in by_spelling if name.startswith(wanted)]
    alike = begun if len(begun) == 1 else difflib.get_close_matches(wanted, by_spelling, n=1)
    containing = sorted((name for name in by_spelling if wanted in name), key=lambda name: (name.find(wanted), name))
    matches = alike or containing
    return by_spelling[matches[0]] if matches else None


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its class's name where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def raised_as(kind: type[ZooError], message: Callable[[Any], str], *errors: type[Exception]) -> Iterator[None]:
    """Raise errors of other libraries as one of the zoo's, with a message made of them; those of the zoo pass."""
    try:
        yield
    except ZooError:
        raise
    except errors as error:
        raise kind(message(error)) from error


def _spelling(name: str) -> str:
    return name.casefold().replace("_", "-").replace(" ", "-").strip("-")


def suggest(given: str, valid: Iterable[str]) -> str:
    """Write the nearest valid name as the end of a message."""
    match = nearest(given, valid)
    return f"; did you mean {match!r}?" if match else ""


def enumerate_names(names: Iterable[str]) -> str:
    """Write names for a message, at most `MOST_NAMES_SHOWN` of them."""
    listed = [str(name) for name in names]
    hidden = len(listed) - MOST_NAMES_SHOWN
    if hidden > 1:
        return ", ".join(listed[:MOST_NAMES_SHOWN]) + f" and {hidden} more"
    return ", ".join(listed) or "none"


class ZooError(Exception):
    """Base of every error that the zoo raises on purpose."""

    exit_code = 2
    """Exit status of the command line: 2 for unusable input, 1 where something outside failed that may work another
    time: the network, a remote, the disk."""


class UnknownNameError(ZooError, LookupError):
    """A name that nothing of its kind has.

    Args:
        kind: Kind of the thing that was given, e.g. "position"; subclasses know their own.
        owner: The thing that `valid` names belong to, e.g. "variant 'vanilla'".

    Attributes:
        nearest: The valid name that was probably meant, that of another library translated; or None.
    """

    kind = "name"

    def __init__(self, given: str, valid: Iterable[str], *, kind: str | None = None, owner: str | None = None) -> None:
        self.given = given
        self.valid = tuple(valid)
        self.kind = kind or type(self).kind
        self.owner = owner
        self.nearest = translate(given, self.valid) or nearest(given, self.valid)
        owned = f" of {owner}" if owner else ""
        meant = f"; did you mean {self.nearest!r}?" if self.nearest else ""
        super().__init__(f"unknown {self.kind} {given!r}{owned}; valid: {enumerate_names(self.valid)}{meant}")

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), kind=self.kind, owner=self.owner), (self.given, self.valid)

    @classmethod
    def check(
        cls, *given: object, valid: Collection[str], kind: str | None = None, owner: object | None = None
    ) -> None:
        """Raise this error for the first name that is not among the valid ones."""
        for name in given:
            if name not in valid:
                raise cls(str(name), valid, kind=kind, owner=None if owner is None else str(owner))


class UnknownVariantError(UnknownNameError):
    """No variant has this name."""

    kind = "variant"


class UnknownWeightsError(UnknownNameError):
    """No weights have this name."""

    kind = "weights"


class UnknownCorpusError(UnknownNameError):
    """No corpus has this name."""

    kind = "corpus"


class UnknownTaskError(UnknownNameError):
    """No task has this name. A model task in place of a training task suggests the right one, and vice versa."""

    kind = "task"


class UnknownTagError(UnknownNameError):
    """No variant carries this tag."""

    kind = "tag"


class UnknownQuirkError(UnknownNameError):
    """The variant has no such quirk."""

    kind = "quirk"


class UnknownPresetError(UnknownNameError):
    """The variant has no such preset."""

    kind = "preset"


class UnknownOverrideError(UnknownNameError):
    """The configuration has no such setting. Names of other libraries are known, and lead to the field's own."""

    kind = "setting"


class UnsupportedTaskError(ZooError, ValueError):
    """A task that exists, asked of a variant that cannot do it.

    Args:
        instead: Alternative with one of those.
    """

    def __init__(self, task: str, variant: str, supported: Iterable[str], instead: str | None = None) -> None:
        self.task = task
        self.variant = variant
        self.supported = tuple(supported)
        self.instead = instead
        super().__init__(
            f"variant {variant!r} does not support task {task!r}; valid: {enumerate_names(self.supported)}"
            f"{suggest(task, self.supported) if instead is None else f'; it can do {instead}'}"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.task, self.variant, self.supported, self.instead)


class NameSyntaxError(ZooError, ValueError):
    """A name, or the settings written after it, cannot be read."""


class RegistrationError(ZooError, ValueError):
    """Something cannot be registered as it was given."""


class NameCollisionError(RegistrationError):
    """Two things of one kind have the same name. The message names the origin of both."""


class ConfigError(ZooError, ValueError):
    """A setting's value is not among its choices, or settings contradict each other."""


class InvalidChoiceError(UnknownNameError, ConfigError):
    """A setting's value is not among its choices."""

    kind = "choice"


class InputError(ZooError, ValueError):
    """A model was given inputs that it cannot take, e.g. ids outside its vocabulary."""


class TokenIdError(InputError, IndexError):
    """Token ids outside of the vocabulary."""


class SequenceTooLongError(InputError, IndexError):
    """More positions than the position encoding has."""


class UnsupportedBackendError(ConfigError):
    """An attention backend that exists, asked of a variant that cannot run on it."""


class UnsupportedOperationError(ZooError, NotImplementedError):
    """Something that transformers' models can or could do and the zoo's cannot."""


class DataError(ZooError, ValueError):
    """Data that cannot be used as it is. The message names the file, and the line if it has one."""


class CheckpointError(ZooError, OSError):
    """A checkpoint is missing, truncated, or not one of the zoo's."""


class FormatVersionError(CheckpointError):
    """A file has a version of its format that this version of the zoo does not read."""


class OtherSizesError(CheckpointError, RuntimeError):
    """Weights of other sizes than the model's."""


class UnwritableError(CheckpointError):
    """Something cannot be written, as where the disk is full, or may only be read."""

    exit_code = 1


class MissingPluginError(CheckpointError):
    """A checkpoint needs a variant from a plugin that is not installed, or is switched off."""


class OutputExistsError(ZooError, FileExistsError):
    """The output would replace something."""


class ZooWarning(UserWarning):
    """Base of the warnings that the zoo gives."""


class PluginWarning(ZooWarning):
    """A plugin could not be loaded and was left out."""


class DeprecatedNameWarning(ZooWarning, FutureWarning):
    """A name that still works, and will be removed."""
