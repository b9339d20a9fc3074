"""Conversions: from another implementation's checkpoint to a model of the zoo, and back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from zoo.base.errors import UnknownOverrideError
from zoo.building.quantizing import Int8Model
from zoo.fast.int8 import refuse
from zoo.models import ZooPreTrainedModel

from .checkpoint import Checkpoint, Source
from .converter import CONVERTERS, Plan
from .errors import ConversionError, NotConvertibleError, UnknownConverterError
from .native import NATIVE
from .native.reading import convert_native, is_native
from .prefixes import below, find_format, without_configuration


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
        prefix: Prefix of the keys to be converted, where there are others ("transformer."). A prefix that all
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
    if is_native(source, origin) and not is_weights_alone(source):
        if prefix:
            raise ConversionError(f"prefix={prefix!r} was given; transformers' own classes are converted whole")
        if unknown := next((name for name in hints if name != "task"), None):
            raise UnknownOverrideError(unknown, ["task"], owner="a conversion of transformers' own classes")
        return convert_native(source, origin=origin, **hints)
    checkpoint = Checkpoint.of(source)
    if origin is not None and origin in NATIVE:
        raise without_configuration(checkpoint.name, [origin])
    if origin is not None and origin not in CONVERTERS:
        raise UnknownConverterError(origin, [*CONVERTERS, *NATIVE])
    checkpoint, name = find_format(below(checkpoint, prefix) if prefix else checkpoint, origin)
    plan = CONVERTERS.get(name).plan(checkpoint, **hints)
    parameters, dtype = parameters_on_meta(plan), checkpoint.dtype
    plan.key_map.check(checkpoint.tensors, parameters)
    tensors = own(plan.key_map.forward(checkpoint.tensors, consume=checkpoint.owned), copies=not checkpoint.owned)
    tensors |= {
        name: torch.zeros(value.shape, dtype=dtype) for name, value in parameters.items() if plan.key_map.is_added(name)
    }
    return load(plan, tensors, dtype)


def own(tensors: dict[str, Tensor], *, copies: bool) -> dict[str, Tensor]:
    """Give every parameter memory of its own."""
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


def is_weights_alone(source: Source) -> bool:
    """Whether a source holds tensors and no configuration of transformers."""
    if isinstance(source, str | os.PathLike):
        return Path(source).is_file()
    return not isinstance(source, PreTrainedModel)


def parameters_on_meta(plan: Plan) -> dict[str, Tensor]:
    """The parameters of a planned model, without allocating any."""
    with torch.device("meta"):
        return dict(plan.model_class(plan.config).named_parameters())


def load(plan: Plan, tensors: dict[str, Tensor], dtype: torch.dtype) -> ZooPreTrainedModel:
    """Build a planned model around converted tensors."""
    model, report = plan.model_class.from_pretrained(
        None, config=plan.config, state_dict=tensors, dtype=dtype, output_loading_info=True
    )
    problems = {word: keys for word, keys in report.items() if keys}
    if problems:
        raise ConversionError(f"the key map of {plan.key_map.owner} does not fit its model: {problems}")
    return model.eval()
