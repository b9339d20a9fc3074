"""Conversions: from another implementation's checkpoint to a model of the zoo, and back."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import CONFIG_NAME, SAFE_WEIGHTS_NAME, WEIGHTS_NAME

from zoo.base.errors import UnknownOverrideError, enumerate_names
from zoo.building.builder import config as build_config
from zoo.building.quantizing import Int8Model
from zoo.fast.int8 import refuse
from zoo.models import ZooPreTrainedModel
from zoo.models.wrapped import plain_model, zoo_model
from zoo.registry import VARIANTS

from .checkpoint import Checkpoint, Source
from .converter import CONVERTERS
from .errors import ConversionError, NotConvertibleError, UnknownConverterError, UnknownFormatError
from .key_map import KeyMap
from .native import NATIVE
from .native.declared import NativeFormat
from .native.reading import convert_native, is_native
from .weights import from_weights

DEEPEST = 4  # How many parts of a key may be its prefix
SHOWN = 4  # How many formats or keys a message names


def below(checkpoint: Checkpoint, prefix: str) -> Checkpoint:
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


@cache
def default_key_map(native: NativeFormat, task: str) -> KeyMap:
    """The keys of a format with default settings, made once: there are hundreds."""
    return native.key_map(build_config(native.variant, task), task)


def native_formats(keys: Collection[str]) -> list[str]:
    """Find the formats of transformers that have all of some keys, those that lack the fewest first."""
    found: dict[str, tuple[float, int]] = {}
    for name in NATIVE:
        native = NATIVE.get(name)
        for task in native.classes:
            if task in VARIANTS.get(native.variant).tasks:
                rows = default_key_map(native, task).rows
                for prefix in {"", native.prefix}:
                    hits = [{n for n, row in enumerate(rows) if row.left.has(prefix + key)} for key in keys]
                    if all(hits):
                        fit = len(rows) - len(set().union(*hits)), native.rank
                        found[name] = min(found.get(name, fit), fit)
    return sorted(found, key=lambda name: found[name])


def convert(source: Source, origin: str | None = None, *, prefix: str = "", **hints: Any) -> ZooPreTrainedModel:
    """Make a model of the zoo from another implementation's weights.

    ```python
    zoo.convert(their_model)
    zoo.convert("model.pt", "vanilla", num_attention_heads=8, pad_token_id=1, decoder_pad_token_id=1)
    zoo.convert("path/to/bert")  # or a repository on the Hub, through transformers
    ```

    The result computes what the original computes, defects included; `quirks=()` keeps the weights and leaves the
    defects out. The weights are copied.

    Args:
        source: A live module, a state_dict, or the path of a file: `.safetensors`, or what `torch.save` wrote of a
            state_dict; a folder or a repository of transformers' own classes. Nothing in a file is executed.
        origin: The name of the format ("vanilla", "d2l", "nlpt", "odom", "explicando", ...); by default it is
            recognised by the keys.
        prefix: Prefix of the keys to be converted, if the checkpoint has others ("transformer."). A prefix that all
            keys have is left out.
        hints: Fields of the configuration that the checkpoint does not hold, like `num_attention_heads`; `quirks`, the
            defects to keep, by default all; `keep_dead=True` to keep weights that the original never uses, so that the
            way back gives every key bit for bit. For transformers' own classes only `task`, by default what the
            checkpoint's class is for.

    Returns:
        A `PreTrainedModel` in evaluation mode, in the checkpoint's dtype.

    Raises:
        ConversionError: When the format is unknown, hints are missing, or keys or shapes do not fit; the message lists
            all of them.
        UnknownOverrideError: When transformers' own class is given a hint other than `task`.
    """
    source = plain_model(source, ConversionError)
    if origin is not None and origin not in NATIVE and origin not in CONVERTERS:
        raise UnknownConverterError(origin, [*CONVERTERS, *NATIVE])
    alone = Path(source).is_file() if isinstance(source, str | os.PathLike) else not isinstance(source, PreTrainedModel)
    if is_native(source, origin) and not alone:  # weights alone have no configuration
        if prefix:
            raise ConversionError(f"prefix={prefix!r} was given; transformers' own classes are converted whole")
        if unknown := next((name for name in hints if name != "task"), None):
            raise UnknownOverrideError(unknown, ["task"], owner="a conversion of transformers' own classes")
        return convert_native(source, origin=origin, **hints)
    if "task" in hints:
        raise ConversionError(f"task={hints['task']!r} was given; only transformers' own classes are converted for one")
    checkpoint = Checkpoint.of(source)
    if origin is not None and origin in NATIVE:
        raise without_configuration(checkpoint.name, [origin])
    checkpoint, name = find_format(below(checkpoint, prefix) if prefix else checkpoint, origin)
    plan = CONVERTERS.get(name).plan(checkpoint, **hints)
    with torch.device("meta"):
        parameters = dict(plan.model_class(plan.config).named_parameters())
    dtype = checkpoint.dtype
    plan.key_map.check(checkpoint.tensors, parameters)
    tensors = own(plan.key_map.forward(checkpoint.tensors, consume=checkpoint.owned), copies=not checkpoint.owned)
    added = {name: value.shape for name, value in parameters.items() if plan.key_map.added.has(name)}
    tensors |= {name: torch.zeros(shape, dtype=dtype) for name, shape in added.items()}
    model, problems = from_weights(plan.model_class, plan.config, tensors, dtype)
    if problems:
        raise ConversionError(f"the key map of {plan.key_map.owner} does not fit its model: {problems}")
    return model


def own(tensors: dict[str, Tensor], *, copies: bool) -> dict[str, Tensor]:
    """Give every parameter its own memory."""
    seen: set[int] = set()
    found = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        found[name] = tensor.detach().clone() if copies or storage in seen else tensor.detach()
        seen.add(storage)
    return found


def convert_back(model: ZooPreTrainedModel, origin: str | None = None) -> dict[str, Tensor]:
    """Make another implementation's state_dict from a model of the zoo.

    Args:
        model: A model that computes what the other implementation does, for instance a converted one after fine-tuning.
        origin: The name of the format, by default the one that the model's variant comes from.

    Returns:
        A state_dict that the other implementation loads with `strict=True`. Weights that it never uses are zero, unless
        they were kept.

    Raises:
        NotConvertibleError: When the other implementation computes something else; the message names it.
    """
    model = zoo_model(model)
    if origin is None:
        variants = {CONVERTERS.get(name).variant: name for name in CONVERTERS if CONVERTERS.get(name).variant}
        origin = variants.get(model.config.variant)
        if origin is None:
            raise NotConvertibleError("any other implementation", [f"variant {model.config.variant!r} has no original"])
    if isinstance(model, Int8Model):
        refuse("be converted")
    key_map = CONVERTERS.get(origin).plan_back(type(model), model.config)
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    return {key: value.clone() for key, value in key_map.backward(parameters).items()}
