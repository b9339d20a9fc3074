"""Key maps: a checkpoint's keys and the zoo's, read from left to right or from right to left."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .errors import CheckpointKeysError, ConversionError, Shape
from .transforms import SAME, Transform

GROUP = re.compile(r"\(([^()]*)\)")
REFERENCE = re.compile(r"\\(\d)")
SPECIAL = re.compile(r"(?<!\\)[.*+?\[\]{}|^$]")


class KeyMapError(ValueError):
    """A row of a key map is wrong: a mistake in the converter, never in a checkpoint."""


@dataclass(frozen=True)
class Side:
    """The keys on one side of a row: patterns to recognise them by, which are templates to write them with."""

    templates: tuple[str, ...]  # Keys that refer to groups by a backslash and a digit
    groups: tuple[str, ...]  # The regular expression of every group
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

    def has(self, key: str) -> bool:
        """Whether a key fits any of the patterns."""
        return any(pattern.match(key) for pattern in self.patterns)

    def write(self, groups: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(REFERENCE.sub(lambda found: groups[int(found[1]) - 1], template) for template in self.templates)


@dataclass(frozen=True)
class Row:
    r"""One line of a key map: left keys, right keys, and how the values on the left become those on the right."""

    # Anchored regular expressions of plain text and groups: `^layers\.(\d+)\.norm\.(weight|bias)$`. The groups of all
    # of them must be the same.
    left: Side
    right: Side  # Templates, with `\1` for the first group. Each must mention every group.
    transform: Transform = SAME  # Maps the tensors on the left to those on the right

    def __post_init__(self) -> None:
        keys, names = self.left.templates, self.right.templates
        if self.transform is SAME and len(keys) != len(names):
            raise KeyMapError(f"{len(keys)} keys become {len(names)} here: give a transform")

    @classmethod
    def of(cls, left: str | tuple[str, ...], right: str | tuple[str, ...], transform: Transform = SAME) -> Row:
        """Read a row as it is written in a table. Arguments as for the class; a string is a tuple of one."""
        patterns = (left,) if isinstance(left, str) else left
        templates = (right,) if isinstance(right, str) else right
        groups = {tuple(GROUP.findall(pattern)) for pattern in patterns}
        if len(groups) != 1:
            raise KeyMapError(f"{patterns} have different groups; a row needs the same ones in all of its patterns")
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
            raise KeyMapError(f"{pattern!r} is not reversible: outside of groups only plain text is allowed")
        pieces[index] = re.sub(r"\\(.)", r"\1", pieces[index])
    return "".join(piece if index % 2 == 0 else f"\\{index // 2 + 1}" for index, piece in enumerate(pieces))


@dataclass(frozen=True)
class KeyMap:
    r"""A table of rows between the keys of another implementation (left) and those of the zoo (right).

    Every key must be matched by exactly one row. The way back is the same table, read from right to left.

    ```python
    from zoo.converters.transforms import join

    KeyMap.of(
        (r"^tok_emb\.weight$", "model.embed_tokens.weight"),
        (r"^blocks\.(\d+)\.mlp\.0\.(weight|bias)$", r"model.layers.\1.mlp.up_proj.\2"),
        (tuple(rf"^blocks\.(\d+)\.heads\.{h}\.q$" for h in range(4)), r"model.layers.\1.self_attn.q_proj", join(4)),
        dead={r"^blocks\.(\d+)\.norm_3\.(weight|bias)$": r"blocks.\1.norm_2.\2"},
    )
    ```

    Args:
        dead: Left keys that nothing reads, with left keys of the same shapes. On the way back they are zero.
        ignored: Left keys that may be there or not, and are left out on the way back.
        added: Right keys that the other implementation has nothing for: zero on the way in, left out on the way back.
        owner: The other implementation's name, for messages.
    """

    rows: tuple[Row, ...]
    dead: tuple[Row, ...] = ()
    ignored: tuple[re.Pattern[str], ...] = ()
    added: tuple[re.Pattern[str], ...] = ()
    owner: str = "foreign"

    @classmethod
    def of(
        cls,
        *rows: tuple[str | tuple[str, ...], str | tuple[str, ...]]
        | tuple[str | tuple[str, ...], str | tuple[str, ...], Transform],
        dead: Mapping[str, str] | None = None,
        ignored: Iterable[str] = (),
        added: Iterable[str] = (),
        owner: str = "foreign",
    ) -> KeyMap:
        """Read a table. Arguments as for the class, each row a tuple as for [`Row.of`][]."""
        return cls(
            tuple(Row.of(*row) for row in rows),
            tuple(Row.of(pattern, twin) for pattern, twin in (dead or {}).items()),
            tuple(re.compile(pattern) for pattern in ignored),
            tuple(re.compile(pattern) for pattern in added),
            owner,
        )

    def forward(self, tensors: Mapping[str, Tensor], *, consume: bool = False) -> dict[str, Tensor]:
        """Read the table from left to right; dead keys are dropped.

        Args:
            consume: Whether to free tensors one by one, by taking them out of their dictionary.

        Raises:
            CheckpointKeysError: Naming every key that no row matches, and every key that a row lacks.
            ConversionError: When values do not fit together.
        """
        dead = {key for key in tensors if any(row.left.has(key) for row in self.dead)}
        alive = {key: value for key, value in tensors.items() if not (key in dead or self.is_ignored(key))}
        if consume and isinstance(tensors, dict):
            tensors.clear()
        return apply(self.rows, alive, self.owner)

    def backward(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Read the table from right to left; dead keys are zero. Errors are those of `forward`."""
        tensors = {key: value for key, value in tensors.items() if not self.is_added(key)}
        found = apply([row.inverse for row in self.rows], tensors, "zoo")
        dead = {
            row.left.write(groups)[0]: torch.zeros_like(value)
            for row in self.dead
            for key, value in found.items()
            for _, groups in row.right.match(key)
        }
        return found | dead

    def is_ignored(self, key: str) -> bool:
        """Whether a left key is optional."""
        return any(pattern.match(key) for pattern in self.ignored)

    def is_added(self, key: str) -> bool:
        """Whether the other implementation has no counterpart of a right key."""
        return any(pattern.match(key) for pattern in self.added)

    def expected(self, parameters: Mapping[str, Tensor]) -> dict[str, Shape]:
        """Left keys and shapes of the checkpoint of a model, by its parameters, which may be on the meta device."""
        meta = {key: torch.empty_like(value, device="meta") for key, value in parameters.items()}
        return {key: tuple(value.shape) for key, value in self.backward(meta).items()}

    def check(self, tensors: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> None:
        """Raise CheckpointKeysError with all unknown, missing and misshapen left keys of a checkpoint."""
        given = {key: tuple(value.shape) for key, value in tensors.items() if not self.is_ignored(key)}
        expected = self.expected(parameters)
        if given != expected:
            raise CheckpointKeysError(given, expected, self.owner)


def apply(rows: Iterable[Row], tensors: dict[str, Tensor], owner: str) -> dict[str, Tensor]:
    """Carry tensors from the left side of rows to their right side."""
    gathered: dict[tuple[int, tuple[str, ...]], set[str]] = {}
    table = list(rows)
    known: dict[str, Shape] = {}
    for key in tensors:
        matches = [(index, groups) for index, row in enumerate(table) for _, groups in row.left.match(key)]
        if len(matches) > 1:
            raise KeyMapError(
                f"{len(matches)} rows match {key!r}: {[table[index].left.templates for index, _ in matches]}"
            )
        for match in matches:
            gathered.setdefault(match, set()).add(key)
    for index, groups in gathered:
        for key in table[index].left.write(groups):
            known[key] = tuple(tensors[key].shape) if key in tensors else ()
    if known.keys() != tensors.keys():
        raise CheckpointKeysError({key: tuple(value.shape) for key, value in tensors.items()}, known, owner)
    carried: dict[str, Tensor] = {}
    for index, groups in gathered:
        row = table[index]
        keys, names = row.left.write(groups), row.right.write(groups)
        try:
            values = row.transform.forward(tuple(tensors.pop(key) for key in keys))
        except (ValueError, RuntimeError) as error:
            raise ConversionError(f"cannot {row.transform.name} {', '.join(keys)}: {error}") from error
        if taken := carried.keys() & set(names):
            raise KeyMapError(f"several rows write {sorted(taken)}")
        carried.update(zip(names, values, strict=True))
    return carried
