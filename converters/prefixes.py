"""Prefixes that other modules put before a checkpoint's keys, and the formats of the keys below them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import accumulate
from pathlib import Path

import torch
from transformers.utils import CONFIG_NAME, SAFE_WEIGHTS_NAME, WEIGHTS_NAME

from zoo.base.errors import enumerate_names
from zoo.building.builder import config as build_config
from zoo.registry import VARIANTS

from .checkpoint import Checkpoint
from .converter import CONVERTERS
from .errors import ConversionError, UnknownFormatError
from .native import NATIVE

DEEPEST = 4
"""How many parts of a key may be its prefix."""

SHOWN = 4
"""How many formats or keys a message names."""


def below(checkpoint: Checkpoint, prefix: str) -> Checkpoint:
    """Take the part of a checkpoint below a prefix."""
    prefix = f"{prefix.rstrip('.')}."
    found = {key.removeprefix(prefix): value for key, value in checkpoint.tensors.items() if key.startswith(prefix)}
    if not found:
        first = sorted({f"{key.split('.')[0]}." for key in checkpoint.tensors if "." in key})
        raise ConversionError(
            f"no key of {checkpoint.name} begins with {prefix!r}; they begin with {enumerate_names(first)}"
        )
    module = None if checkpoint.module is None else checkpoint.module.get_submodule(prefix[:-1])
    return Checkpoint(found, module, checkpoint.name, checkpoint.owned)


def find_format(checkpoint: Checkpoint, origin: str | None) -> tuple[Checkpoint, str]:
    """The checkpoint without the shortest prefix below which its format is recognised, and its converter's name."""
    keys = list(checkpoint.tensors)
    for prefix in prefixes(keys):
        below_it = [key.removeprefix(prefix) for key in keys if key.startswith(prefix)]
        names = [name for name in ([origin] if origin else CONVERTERS) if CONVERTERS.get(name).recognises(below_it)]
        if len(names) > 1:
            raise UnknownFormatError(
                f"the keys {enumerate_names(keys[:SHOWN])}, ... may be of {enumerate_names(names)}; choose by origin=, "
                "or --from on the command line"
            )
        if names and len(below_it) == len(keys):
            return (below(checkpoint, prefix) if prefix else checkpoint), names[0]
        if names:
            others = [key for key in keys if not key.startswith(prefix)]
            raise UnknownFormatError(
                f"the keys below {prefix!r} are those of {names[0]}, which has no place for {len(others)} others "
                f"({enumerate_names(others[:SHOWN])}); to convert the former alone: zoo.convert(source, {names[0]!r}, "
                f"prefix={prefix!r}), on the command line --from {names[0]} --prefix {prefix}"
            )
    if origin is not None:
        return checkpoint, origin
    for prefix in (one for one in prefixes(keys) if all(key.startswith(one) for key in keys)):
        if names := native_formats([key.removeprefix(prefix) for key in keys]):
            raise without_configuration(checkpoint.name, names, prefix)
    raise UnknownFormatError(
        f"no format has the keys {enumerate_names(keys[:SHOWN])}, ...; valid: {enumerate_names(CONVERTERS)}; choose by "
        "origin=, or --from on the command line"
    )


def sniff(keys: Collection[str]) -> str:
    """Name of the converter that recognises the keys of a checkpoint.

    Raises:
        UnknownFormatError: When no converter, or more than one, recognises the keys, or only some of them.
    """
    return find_format(Checkpoint(dict.fromkeys(keys, torch.empty(0))), None)[1]


def without_configuration(name: str, formats: Collection[str], prefix: str = "") -> UnknownFormatError:
    """The error for weights of transformers' own classes without their configuration, in one of several formats."""
    without = f", without the prefix {prefix!r}" if prefix else ""
    first = enumerate_names(list(formats)[:SHOWN])
    folder = Path(name).parent
    way = (
        f"convert the folder, {folder}, which has one"
        if Path(name).is_file() and (folder / CONFIG_NAME).is_file()
        else f"save them{without} in a folder as {SAFE_WEIGHTS_NAME} or {WEIGHTS_NAME}, with the {CONFIG_NAME} of "
        "the model that was trained, and convert the folder"
    )
    return UnknownFormatError(
        f"{name} has weights of transformers' {first}{' and others' if len(formats) > SHOWN else ''}, but no "
        f"configuration: {way} (zoo convert FOLDER, with --from {next(iter(formats))} to be sure of the format)"
    )


def prefixes(keys: Collection[str]) -> Iterator[str]:
    """Find what keys may have been prefixed with, the empty prefix and shorter ones first."""
    found = {begin for key in keys for begin in accumulate(f"{part}." for part in key.split(".")[:-1][:DEEPEST])}
    yield from sorted({"", *found}, key=lambda prefix: (prefix.count("."), prefix))


def native_formats(keys: Collection[str]) -> list[str]:
    """Find the formats of transformers that have all of some keys, those that lack the fewest first."""
    found: dict[str, tuple[float, int]] = {}
    for name in NATIVE:
        native = NATIVE.get(name)
        for task in native.classes:
            if task in VARIANTS.get(native.variant).tasks:
                key_map = native.key_map(build_config(native.variant, task), task)
                for prefix in {"", native.prefix}:
                    rows: set[int] = set()
                    known = 0
                    for key in keys:
                        hit = [
                            n for n, row in enumerate(key_map.rows) if any(True for _ in row.left.match(prefix + key))
                        ]
                        rows.update(hit)
                        known += bool(hit) or key_map.is_ignored(prefix + key)
                    if known == len(keys):
                        lacking = len(key_map.rows) - len(rows)
                        found[name] = min(found.get(name, (lacking, native.rank)), (lacking, native.rank))
    return sorted(found, key=lambda name: found[name])
