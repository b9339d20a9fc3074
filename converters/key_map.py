"""Key maps: a checkpoint's keys and the zoo's, read from left to right or from right to left."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .errors import CheckpointKeysError, ConversionError, Shape
from .transforms import SAME, Transform

PLACEHOLDERS = {"n": r"\d+", "p": "weight|bias", "s": "encoder|decoder"}
"""Regular expressions of placeholders in keys: a layer's number, a linear layer's parameter, a stack."""

PLACEHOLDER = re.compile(r"\{\w*\}")

Values = tuple[tuple[str, str], ...]  # Values of a key's placeholders, by name


class KeyMapError(ValueError):
    """A row of a key map is wrong: a mistake in the converter, never in a checkpoint."""


@cache
def pattern(key: str) -> re.Pattern[str]:
    """Compile a key with placeholders; a placeholder that occurs twice has one value."""
    text = re.escape(key)
    for name, choices in PLACEHOLDERS.items():
        place = re.escape(f"{{{name}}}")
        text = text.replace(place, f"(?P<{name}>{choices})", 1).replace(place, f"(?P={name})")
    return re.compile(text)


@dataclass(frozen=True)
class Side:
    """The keys on one side of a row, with placeholders."""

    keys: tuple[str, ...]

    def match(self, key: str) -> list[Values]:
        """Find the values of placeholders by which a key is one of these."""
        found = (pattern(known).fullmatch(key) for known in self.keys)
        return [tuple(sorted(one.groupdict().items())) for one in found if one is not None]

    def has(self, key: str) -> bool:
        return any(pattern(known).fullmatch(key) for known in self.keys)

    def write(self, values: Values) -> tuple[str, ...]:
        return tuple(key.format(**dict(values)) for key in self.keys)


@dataclass(frozen=True)
class Row:
    """One line of a key map: left keys, right keys, and how the values on the left become those on the right."""

    left: Side
    right: Side
    transform: Transform = SAME  # Maps the tensors on the left to those on the right

    def __post_init__(self) -> None:
        keys, names = self.left.keys, self.right.keys
        if self.transform is SAME and len(keys) != len(names):
            raise KeyMapError(f"{len(keys)} keys become {len(names)} here: give a transform")
        found = {key: {*PLACEHOLDER.findall(key)} for key in (*keys, *names)}
        if any(placeholders != found[keys[0]] for placeholders in found.values()):
            raise KeyMapError(f"{keys} and {names} have different placeholders; a row needs the same ones in all keys")
        if unknown := found[keys[0]] - {f"{{{name}}}" for name in PLACEHOLDERS}:
            raise KeyMapError(f"{keys[0]!r} has unknown placeholders {sorted(unknown)}; valid: {[*PLACEHOLDERS]}")

    @classmethod
    def of(cls, left: str | tuple[str, ...], right: str | tuple[str, ...], transform: Transform = SAME) -> Row:
        """Read a row as it is written in a table. Arguments as for the class; a string is a tuple of one."""
        lefts = (left,) if isinstance(left, str) else left
        rights = (right,) if isinstance(right, str) else right
        return cls(Side(lefts), Side(rights), transform)

    @property
    def inverse(self) -> Row:
        """The row read from right to left."""
        return Row(self.right, self.left, self.transform.inverse)


Keys = Mapping[Any, Any]
"""Modules or weights of another implementation by the zoo's: a name, or names and a transform (or a function that makes
one of the zoo's configuration). A name without one of the endings `TENSORS` is a module's: its weight and bias."""

TENSORS = (  # Endings of the names of weights
    *(".weight", ".bias", "_bias", "{p}", ".experts.gate_up_proj", ".experts.down_proj", ".sinks", ".A_log"),
    *(".lambda_q1", ".lambda_k1", ".lambda_q2", ".lambda_k2"),
)

Pair = tuple[str | tuple[str, ...], str | tuple[str, ...], Transform]
"""Keys of another implementation, the zoo's, and the transform between them: a row as `Row.of` reads it."""


def pairs(keys: Keys, ours: str = "", theirs: str = "", config: Any = None) -> Iterator[Pair]:
    """Rows of a table of keys, with the prefixes of both sides."""
    for zoo, native in keys.items():
        names, transform = native if isinstance(native, tuple) else (native, SAME)
        lefts = names if isinstance(names, tuple) else (names,)
        rights = zoo if isinstance(zoo, tuple) else (zoo,)
        ending = "" if lefts[0].endswith(TENSORS) else ".{p}"
        yield (
            tuple(f"{theirs}{name}{ending}" for name in lefts),
            tuple(f"{ours}{name}{ending}" for name in rights),
            transform if isinstance(transform, Transform) else transform(config),
        )


@dataclass(frozen=True)
class KeyMap:
    """A table of rows between the keys of another implementation (left) and those of the zoo (right).

    Every key must be matched by exactly one row. The way back is the same table, read from right to left.

    ```python
    from zoo.converters.transforms import join

    KeyMap.of(
        ("tok_emb.weight", "model.embed_tokens.weight"),
        ("blocks.{n}.mlp.0.{p}", "model.layers.{n}.mlp.up_proj.{p}"),
        (tuple(f"blocks.{{n}}.heads.{h}.q" for h in range(4)), "model.layers.{n}.self_attn.q_proj", join(4)),
        dead={"blocks.{n}.norm_3.{p}": "blocks.{n}.norm_2.{p}"},
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
    ignored: Side = Side(())
    added: Side = Side(())
    owner: str = "foreign"

    @classmethod
    def of(
        cls,
        *rows: tuple[str | tuple[str, ...], str | tuple[str, ...]] | Pair,
        dead: Mapping[str, str] | None = None,
        ignored: Iterable[str] = (),
        added: Iterable[str] = (),
        owner: str = "foreign",
    ) -> KeyMap:
        """Read a table. Arguments as for the class, each row a tuple as for [`Row.of`][]."""
        twins = tuple(Row.of(key, twin) for key, twin in (dead or {}).items())
        return cls(tuple(Row.of(*row) for row in rows), twins, Side(tuple(ignored)), Side(tuple(added)), owner)

    def forward(self, tensors: Mapping[str, Tensor], *, consume: bool = False) -> dict[str, Tensor]:
        """Read the table from left to right; dead keys are dropped.

        Args:
            consume: Whether to free tensors one by one, by taking them out of their dictionary.

        Raises:
            CheckpointKeysError: Naming every key that no row matches, and every key that a row lacks.
            ConversionError: When values do not fit together.
        """
        dead = {key for key in tensors if any(row.left.has(key) for row in self.dead)}
        alive = {key: value for key, value in tensors.items() if not (key in dead or self.ignored.has(key))}
        if consume and isinstance(tensors, dict):
            tensors.clear()
        return apply(self.rows, alive, self.owner)

    def backward(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Read the table from right to left; dead keys are zero. Errors are those of `forward`."""
        tensors = {key: value for key, value in tensors.items() if not self.added.has(key)}
        found = apply([row.inverse for row in self.rows], tensors, "zoo")
        dead = {
            row.left.write(values)[0]: torch.zeros_like(value)
            for row in self.dead
            for key, value in found.items()
            for values in row.right.match(key)
        }
        return found | dead

    def expected(self, parameters: Mapping[str, Tensor]) -> dict[str, Shape]:
        """Left keys and shapes of the checkpoint of a model, by its parameters, which may be on the meta device."""
        meta = {key: torch.empty_like(value, device="meta") for key, value in parameters.items()}
        return {key: tuple(value.shape) for key, value in self.backward(meta).items()}

    def check(self, tensors: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> None:
        """Raise CheckpointKeysError with all unknown, missing and misshapen left keys of a checkpoint."""
        given = {key: tuple(value.shape) for key, value in tensors.items() if not self.ignored.has(key)}
        expected = self.expected(parameters)
        if given != expected:
            raise CheckpointKeysError(given, expected, self.owner)


def apply(rows: Iterable[Row], tensors: dict[str, Tensor], owner: str) -> dict[str, Tensor]:
    """Carry tensors from the left side of rows to their right side."""
    table = list(rows)
    gathered: dict[tuple[int, Values], None] = {}
    for key in tensors:
        matches = [(index, values) for index, row in enumerate(table) for values in row.left.match(key)]
        if len(matches) > 1:
            raise KeyMapError(f"{len(matches)} rows match {key!r}: {[table[index].left.keys for index, _ in matches]}")
        gathered |= dict.fromkeys(matches)
    read = {key for index, values in gathered for key in table[index].left.write(values)}
    if read != tensors.keys():
        given = {key: tuple(value.shape) for key, value in tensors.items()}
        raise CheckpointKeysError(given, {key: given.get(key, ()) for key in read}, owner)
    carried: dict[str, Tensor] = {}
    for index, values in gathered:
        row = table[index]
        keys, names = row.left.write(values), row.right.write(values)
        try:
            results = row.transform.forward(tuple(tensors.pop(key) for key in keys))
        except (ValueError, RuntimeError) as error:
            raise ConversionError(f"cannot {row.transform.name} {', '.join(keys)}: {error}") from error
        if taken := carried.keys() & set(names):
            raise KeyMapError(f"several rows write {sorted(taken)}")
        carried.update(zip(names, results, strict=True))
    return carried
