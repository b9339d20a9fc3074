"""Which classes of transformers can express a model, by which symmetries, and why others cannot.

Exports translate settings. A variant's own code may compute something else (a quirk, a plugin's layer): then a small
model of it differs from the plain Transformer with the same settings and weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers import CONFIG_MAPPING

from zoo.models import ACTIVATIONS, POSITIONS, TASK_CLASSES, ZooConfig, ZooPreTrainedModel
from zoo.registry import VARIANTS, Task

from .native.declared import NATIVE, NativeFormat
from .symmetries.base import State, find_route, plain_needs, settled
from .target import TARGETS, Reason, TargetPlan, because
from .verification import draw_batch
from .weights import further_tokens_left_out, task_of, under_all_names, weights_of

PLAIN = "pre-norm"  # A variant with no code beyond its settings

HEAD_DIM = 8
VOCABULARY = 13
LENGTH = 6


@dataclass(frozen=True)
class Arithmetic:
    """Computations of a variant beyond its settings."""

    own: tuple[str, ...]  # A phrase for each, none where the settings describe everything
    needs_masks: bool  # Whether it masks tokens although no mask was given, which no class of transformers does


def arithmetic_of(config: ZooConfig, task: str) -> Arithmetic:
    """Find out what a variant computes beyond its settings, or by settings that no class of transformers has."""
    if config.classifier_positions is not None and task == Task.SEQUENCE_CLASSIFICATION:
        return Arithmetic((f"its classifier labels {config.classifier_positions} positions of one vector",), False)
    if not ACTIVATIONS.origin(config.hidden_act).built_in:
        return Arithmetic((f"hidden_act={config.hidden_act!r}, which is a plugin's",), False)
    small = shrink(config)
    is_plain, is_plain_without_mask = compared(small, task)
    if is_plain:
        return Arithmetic((), not is_plain_without_mask)
    quirks = VARIANTS.get(config.variant).quirks
    guilty = [name for name in config.quirks if not compared(settled(small, {"quirks": [name]}), task)[0]]
    own = [f"variant {config.variant!r} computes more than its settings describe"]
    if guilty and compared(settled(small, {"quirks": []}), task)[0]:
        own = [f"quirk {name!r}: {quirks[name].description}" for name in guilty]
    return Arithmetic(tuple(own), not is_plain_without_mask)


def compared(config: ZooConfig, task: str) -> tuple[bool, bool]:
    """Compare a model with the plain Transformer of the same settings and weights."""
    model_class = TASK_CLASSES[task][1]
    try:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = scrambled(model_class._from_config(config, dtype=torch.float64))
            alike = settled(config, {"variant": PLAIN, "quirks": [], "providers": {}})
            plain = model_class._from_config(alike, dtype=torch.float64)
        mask = torch.ones(2, LENGTH, dtype=torch.long)
        mask[1, LENGTH - 2 :] = 0
        given = draw_batch(config, mask, LENGTH - 1, torch.Generator().manual_seed(0))
        plain.load_state_dict(under_all_names(model))
        plain.eval()
    except Exception:  # a plugin's code may raise anything; where it does, it is not the plain Transformer
        return False, False
    without_mask = {name: tensor for name, tensor in given.items() if name != "attention_mask"}
    return same_outputs(model, plain, given), same_outputs(model, plain, without_mask)


def same_outputs(model: ZooPreTrainedModel, plain: ZooPreTrainedModel, given: dict[str, Tensor]) -> bool:
    """Whether two models compute the same of real tokens; False where one of them raises anything."""
    try:
        with torch.no_grad():
            theirs, ours = outputs(model, given), outputs(plain, given)
    except Exception:  # as above
        return False
    return theirs.shape == ours.shape and torch.allclose(theirs, ours, rtol=1e-9, atol=1e-9)


def shrink(config: ZooConfig) -> ZooConfig:
    """Settings of the same arithmetic with small sizes."""
    heads = math.lcm(config.num_attention_heads, config.decoder_attention_heads or 1)
    own_width = config.head_dim * config.num_attention_heads != config.hidden_size
    settings: dict[str, Any] = {
        "hidden_size": heads * HEAD_DIM,
        "head_dim": HEAD_DIM if own_width else heads * HEAD_DIM // config.num_attention_heads,
        "intermediate_size": 2 * HEAD_DIM,
        "num_hidden_layers": min(config.num_hidden_layers, 2),
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 2 * LENGTH,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if config.stack == "encoder-decoder":
        settings |= {
            "decoder_layers": min(config.decoder_layers, 2),
            "decoder_intermediate_size": 2 * HEAD_DIM,
            "decoder_vocab_size": VOCABULARY,
            "decoder_start_token_id": 1,
        }
    # Two layers show both kinds where layers differ.
    kinds = list(zip(config.types_of_layers(), config.placed_types_of_layers(), strict=True))
    two = sorted(range(len(kinds)), key=lambda layer: kinds.index(kinds[layer]) != layer)[:2]
    if hasattr(config, "layer_types"):
        settings["layer_types"] = [config.layer_types[layer] for layer in two]
    if config.nope_layers is not None:
        settings["nope_layers"] = [config.nope_layers[layer] for layer in two]
    if config.sliding_window is not None:
        settings["sliding_window"] = 3
    if rope := getattr(config, "rope_parameters", None):
        own = {name: shrunk_rope(each, settings["head_dim"]) for name, each in rope.items() if isinstance(each, dict)}
        settings["rope_parameters"] = own or shrunk_rope(rope, settings["head_dim"])
    return settled(config, settings)


def shrunk_rope(rope: dict[str, Any], head_dim: int) -> dict[str, Any]:
    columns = int(head_dim * rope.get("partial_rotary_factor", 1.0)) // 2
    return {**rope, **{name: [1.0] * columns for name in ("short_factor", "long_factor") if name in rope}}


def scrambled(model: ZooPreTrainedModel) -> ZooPreTrainedModel:
    """Give every parameter random values, so that no error is multiplied by zero or one."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3 + 0.1)
    return model.eval()


def outputs(model: ZooPreTrainedModel, given: dict[str, Tensor]) -> Tensor:
    result = model(**given)
    found = result.logits if hasattr(result, "logits") else result.last_hidden_state
    if found.ndim == 3 and "decoder_input_ids" not in given:
        return found * (given["input_ids"] != 0)[..., None]
    return found


def plan_export(model: ZooPreTrainedModel, names: Iterable[str] | None = None) -> list[TargetPlan]:
    """Plan exports to all classes of transformers, or to those of some model types.

    Exact ones are first, and those with the fewest and most robust changes before others.
    """
    config, task, state = model.config, task_of(model), weights_of(model)
    found = arithmetic_of(config, task)
    plans = [plan_target(NATIVE.get(name), config, state, task, found) for name in (NATIVE if names is None else names)]
    return sorted(plans, key=_rank)


def plan_engines(model: ZooPreTrainedModel, names: Iterable[str] | None = None) -> list[TargetPlan]:
    """Plan exports to the bundle and to other engines; that some of them work is known only after a trial."""
    left_out = further_tokens_left_out(model.config, task_of(model))
    plans = [TARGETS.get(name).plan(model) for name in (TARGETS if names is None else names)]
    return [plan if plan.target == "bundle" else replace(plan, notes=(*plan.notes, *left_out)) for plan in plans]


def nearest(plans: Iterable[TargetPlan]) -> TargetPlan | None:
    possible = (plan for plan in plans if plan.route is not None)
    return min(possible, key=lambda plan: len(plan.obstacles), default=None)


def _rank(plan: TargetPlan) -> tuple[bool, bool, int, int]:
    changes = len(plan.transforms) if plan.exact else 0
    return not plan.exact, not plan.half_precision, changes, NATIVE.get(plan.target).rank


def try_config(native: NativeFormat, config: ZooConfig, task: str) -> tuple[list[str], list[str]]:
    """Obstacles for fields that are of no type or value that the class's configuration takes, and notes on others."""
    try:
        written = CONFIG_MAPPING[native.model_types[0]](**native.write_config(config, task))
    except (StrictDataclassError, KeyError, TypeError, ValueError) as error:
        return [f"its configuration refuses it: {' '.join(str(error).split())}"], []
    found = native.differences(written, native.read_config(written, task), config)
    return [], [f"{difference[0].upper()}{difference[1:]}." for difference in found]


def plan_target(
    native: NativeFormat, config: ZooConfig, state: State, task: str, found: Arithmetic | None = None
) -> TargetPlan:
    """Plan one export; `found` are computations of the variant beyond its settings, found out if not given."""
    class_name = native.classes.get(task)
    stack = [] if native.stack == config.stack else native.obstacles(config, state, task)
    if class_name is None or stack:
        reasons = stack or [f"it has no class for {task}"]
        return TargetPlan(native.name, class_name, None, tuple(because(Reason.ENGINE, reasons)))
    found = arithmetic_of(config, task) if found is None else found
    obstacles = because(Reason.ENGINE, found.own)
    route = find_route(config, {**plain_needs(task), **native.needs(config, task)}, task, native.reasons)
    obstacles += because(Reason.SETTING, [*route.obstacles, *native.obstacles(route.config, state, task)])
    if task == Task.SEQ2SEQ_LM and config.decoder_start_token_id is None:
        obstacles += because(Reason.SETTING, ["decoder_start_token_id is None, from which it generates"])
    refused, differences = ([], []) if obstacles else try_config(native, route.config, task)
    obstacles += because(Reason.SETTING, refused)
    notes = [*native.notes(route.config, task), *differences, *further_tokens_left_out(config, task)]
    if task == Task.MASKED_LM and config.masked_next_token:
        notes.append("A masked token is predicted one position earlier: `fill-mask` reads another token's prediction.")
    if not obstacles and found.needs_masks:
        notes.append("Give attention masks: the original made them from the ids where none were given.")
    length = POSITIONS.get(route.config.position).changes_after(route.config)
    if length is not None and task in (Task.CAUSAL_LM, Task.SEQ2SEQ_LM) and native.name != "phi3":
        limit = f"Generate with use_cache=False beyond {length} tokens"
        notes.append(f"{limit}: the class does not rotate cached keys again.")
    fragile = [step.symmetry.name for step in route.steps if not step.symmetry.half_precision]
    if fragile:
        notes.append(f"Keep it in float32: 16-bit floats will likely break {', '.join(fragile)}.")
    return TargetPlan(native.name, class_name, route, tuple(obstacles), tuple(notes))
