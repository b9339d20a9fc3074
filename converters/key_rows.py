"""The rows of key maps: keys on the left beside keys on the right, as patterns that are templates as well."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from .transforms import SAME, Transform

GROUP = re.compile(r"\(([^()]*)\)")
REFERENCE = re.compile(r"\\(\d)")
SPECIAL = re.compile(r"(?<!\\)[.*+?\[\]{}|^$]")


class KeyMapError(ValueError):
    """A row of a key map is wrong: a mistake in the converter, never in a checkpoint."""


@dataclass(frozen=True)
class Side:
    """The keys on one side of a row: patterns to recognise them by, which are templates to write them with.

    Args:
        templates: Keys in which a backslash and a digit stand for a group.
        groups: The regular expression of every group.
    """

    templates: tuple[str, ...]
    groups: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "patterns", tuple(re.compile(self._pattern(text)) for text in self.templates))

    def _pattern(self, template: str) -> str:
        pieces, written = [], set()
        for index, piece in enumerate(REFERENCE.split(template)):
            if index % 2 == 0:
                pieces.append(re.escape(piece))
            elif piece in written:
                pieces.append(f"(?P=g{piece})")
            else:
                pieces.append(f"(?P<g{piece}>{self.groups[int(piece) - 1]})")
                written.add(piece)
        if len(written) != len(self.groups):
            raise KeyMapError(f"{template!r} has to mention each of {len(self.groups)} groups, to be reversible")
        return f"^{''.join(pieces)}$"

    def match(self, key: str) -> Iterable[tuple[int, tuple[str, ...]]]:
        """Find the patterns that a key fits."""
        for place, pattern in enumerate(self.patterns):
            if (found := pattern.match(key)) is not None:
                yield place, tuple(found[f"g{number + 1}"] for number in range(len(self.groups)))

    def write(self, groups: tuple[str, ...]) -> tuple[str, ...]:
        """Write the keys down."""
        return tuple(REFERENCE.sub(lambda found: groups[int(found[1]) - 1], template) for template in self.templates)


@dataclass(frozen=True)
class Row:
    r"""One line of a key map: left keys, right keys, and how the values on the left become those on the right.

    Args:
        left: Anchored regular expressions of plain text and groups: `^layers\.(\d+)\.norm\.(weight|bias)$`. The groups
            of all of them must be the same.
        right: Templates, in which `\1` stands for the first group. Each must mention every group.
        transform: Maps the tensors on the left to those on the right.
    """

    left: Side
    right: Side
    transform: Transform = SAME

    @classmethod
    def of(cls, left: str | tuple[str, ...], right: str | tuple[str, ...], transform: Transform = SAME) -> Row:
        """Read a row as it is written in a table. Arguments as for the class; a string stands for a tuple of one."""
        patterns = (left,) if isinstance(left, str) else left
        templates = (right,) if isinstance(right, str) else right
        groups = {tuple(GROUP.findall(pattern)) for pattern in patterns}
        if len(groups) != 1:
            raise KeyMapError(f"{patterns} have different groups; a row needs the same ones in all of its patterns")
        if transform is SAME and len(patterns) != len(templates):
            raise KeyMapError(f"{len(patterns)} keys become {len(templates)} here: a transform has to say how")
        return cls(Side(tuple(map(_template, patterns)), *groups), Side(templates, *groups), transform)

    @property
    def inverse(self) -> Row:
        """The row read from right to left."""
        return Row(self.right, self.left, self.transform.inverse)


def _template(pattern: str) -> str:
    """Turn an anchored regular expression of plain text and groups into a template."""
    if not (pattern.startswith("^") and pattern.endswith("$")):
        raise KeyMapError(f"{pattern!r} is not anchored: begin it with ^ and end it with $")
    pieces = GROUP.split(pattern[1:-1])
    for index in range(0, len(pieces), 2):
        if SPECIAL.search(pieces[index]):
            raise KeyMapError(f"{pattern!r} is not reversible: outside of groups only plain text may stand")
        pieces[index] = re.sub(r"\\(.)", r"\1", pieces[index])
    return "".join(piece if index % 2 == 0 else f"\\{index // 2 + 1}" for index, piece in enumerate(pieces))
