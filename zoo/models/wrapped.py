"""Models inside of the wrappers of torch.compile, of data parallelism, and of PEFT."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import PreTrainedModel

from zoo.base.errors import InputError, UnsupportedOperationError, ZooError

from .pretrained import ZooPreTrainedModel

WRAPPERS = ("module.", "_orig_mod.")
"""Prefixes of all keys of DataParallel's and torch.compile's modules."""


def unwrapped(model: Any) -> Any:
    """Take a module out of torch.compile and data parallelism; anything else is returned as it is."""
    while isinstance(model, nn.Module) and f"{'.'.join(model._modules)}." in WRAPPERS:  # its only child
        (model,) = model.children()
    return model


def plain_model(given: Any, error: type[ZooError] = UnsupportedOperationError) -> Any:
    """Unwrap a model, and refuse one with adapters, where a model's own weights are needed."""
    model = unwrapped(given)
    if hasattr(model, "peft_config"):
        raise error(
            "a model with adapters was given; merge them first: PEFT's model.merge_and_unload() returns it (an adapter "
            "that was saved by itself has that method as PeftModel.from_pretrained(model, folder))"
        )
    return model


def zoo_model(given: Any, error: type[ZooError] = UnsupportedOperationError) -> ZooPreTrainedModel:
    """Unwrap a model as `plain_model`, and refuse everything that is no model of the zoo."""
    model = plain_model(given, error)
    if not isinstance(model, ZooPreTrainedModel):
        raise InputError(
            f"a {type(model).__name__} was given; give a model of the zoo, as zoo.load and zoo.convert return"
        )
    return model


def running_model(given: Any) -> PreTrainedModel:
    """Unwrap a model that is to run, with its adapters in its layers; refuse a learned prompt, and what is no model.

    PEFT puts a prompt's vectors in front of the tokens: outputs have more positions than tokens and labels.
    """
    model = unwrapped(given)
    if isinstance(model, PreTrainedModel):
        return model
    if not hasattr(model, "get_base_model"):
        raise InputError(f"a {type(model).__name__} was given; give a model, its folder, or the name of weights")
    if model.active_peft_config.is_prompt_learning:
        kind = model.active_peft_config.peft_type.value
        raise UnsupportedOperationError(
            f"a model with a learned prompt ({kind}) was given, which has more positions than its text has tokens; "
            "run it by PEFT's own forward and generate"
        )
    base: PreTrainedModel = model.get_base_model()
    return base
