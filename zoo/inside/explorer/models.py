"""Models to explore, each loaded once."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from functools import lru_cache

from zoo.base.errors import InputError
from zoo.converters.weights import task_of
from zoo.data.tokenizers import Tokenizers
from zoo.models import ZooConfig, ZooPreTrainedModel
from zoo.models.wrapped import zoo_model
from zoo.registry import VARIANTS, find_weights, list_weights
from zoo.training.generation import load_checkpoint

KEPT = 8  # How many models stay in memory, the latest


@dataclass(frozen=True)
class Explored:
    """A model that can be looked at."""

    name: str  # Displayed name
    model: ZooPreTrainedModel
    tokenizers: Tokenizers  # Tokenizers of its inputs and outputs


def shipped_models() -> list[str]:
    """List the weights that are there without a network."""
    shipped = [name for name in list_weights() if not find_weights(name).on_hub]
    return sorted(shipped, key=lambda name: (find_weights(name).task != "seq2seq-lm", name))


@lru_cache(KEPT)
def explored(name: str) -> Explored:
    """Load a model on the CPU, once."""
    model, tokenizers = load_checkpoint(name, device="cpu", engine="torch")
    return Explored(name, zoo_model(model), tokenizers)


def with_quirks(one: Explored, quirks: tuple[str, ...]) -> Explored:
    config = one.model.config
    variant, task = VARIANTS.get(config.variant), task_of(one.model)
    before, after = (variant.settings(task, quirks=chosen) for chosen in (tuple(config.quirks), quirks))
    plain = {field.name: field.default for field in dataclasses.fields(ZooConfig)}
    changes = {key: after.get(key, plain.get(key)) for key in {*before, *after} if before.get(key) != after.get(key)}
    changed = type(one.model)(ZooConfig.from_dict({**config.to_dict(), **changes, "quirks": list(quirks)}))
    state = one.model.state_dict()
    if any(name not in state or state[name].shape != value.shape for name, value in changed.state_dict().items()):
        raise InputError(f"the weights of {one.name!r} do not fit {'+'.join((config.variant, *quirks))!r}")
    changed.load_state_dict(state, strict=False)
    if changed.can_generate():  # a quirk of stepwise decoding shows with a cache alone
        changed.generation_config = copy.deepcopy(one.model.generation_config)
        if "use_cache" in changes:
            changed.generation_config.use_cache = changes["use_cache"]
    return Explored(one.name, changed.eval(), one.tokenizers)
