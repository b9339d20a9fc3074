"""The fairness sheet of a comparison: what variants share, in which settings they differ, and what qualifies verdicts.

Reports of every format show this sheet.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean
from typing import Any

from zoo.base.errors import ZooError
from zoo.building.builder import build, config, skeleton
from zoo.building.starting import unequal_starts
from zoo.models import ZooConfig
from zoo.models.parts import deviations_of
from zoo.models.roles import parameter_roles
from zoo.registry import parse_name
from zoo.training import Recipe
from zoo.training.arguments import DECAYS
from zoo.training.optimizers import decayed_parameters

from ..plan import united
from ..request.seeds import at_the_edge, model_fields
from .comparison import Comparison
from .units import enumerated, large


def recipe_of(comparison: Comparison) -> Recipe | None:
    """Find the recipe of a comparison; None where its task is not known here."""
    known = {key: value for key, value in comparison.recipe.items() if key in Recipe.__dataclass_fields__}
    try:
        recipe = Recipe(**known)
        recipe.data_task()
    except (ZooError, TypeError):
        return None
    return recipe


def settings_of(comparison: Comparison, name: str) -> dict[str, Any]:
    return next((run.settings for run in comparison.runs_of(name)), {})


def swept_values(comparison: Comparison, name: str) -> dict[str, Any]:
    """Find the values that a sweep has chosen for a variant."""
    swept = () if comparison.sweep is None else comparison.sweep["values"]
    chosen = settings_of(comparison, name)
    return {key: chosen[key] for key in swept if key in chosen}


def matched_sizes(comparison: Comparison, name: str) -> dict[str, Any]:
    """Find the fields of the configuration that matching has chosen for a variant."""
    swept, chosen = swept_values(comparison, name), settings_of(comparison, name).items()
    return {key: value for key, value in chosen if key in ZooConfig.__dataclass_fields__ and key not in swept}


def as_built(comparison: Comparison, name: str, *, matched: bool = True) -> str:
    """Add to a variant's name the settings of the recipe, of matching, and of the data."""
    spec, recipe = parse_name(name), recipe_of(comparison)
    usual = {} if recipe is None else recipe.model_settings(name)
    if recipe is not None and "vocab_size" in recipe.tokenizer and not comparison.data_settings:
        usual = {**usual, "vocab_size": recipe.tokenizer["vocab_size"]}
    usual = {**comparison.data_settings, **usual}
    sizes = matched_sizes(comparison, name) if matched else {}
    chosen = {**sizes, **model_fields(swept_values(comparison, name))}
    return str(replace(spec, overrides={**usual, **spec.overrides, **chosen}))


DROPOUTS = ("dropout", "attention_dropout", "activation_dropout")


@dataclass(frozen=True)
class FairnessSheet:
    """Equal and different conditions of variants."""

    shared: Mapping[str, str]
    variants: Mapping[str, Mapping[str, str]]
    qualifications: Mapping[str, tuple[str, ...]]  # Phrases that belong to the verdict of each variant, by name

    @property
    def topics(self) -> list[str]:
        return list(dict.fromkeys(topic for facts in self.variants.values() for topic in facts))


def fairness_sheet(comparison: Comparison) -> FairnessSheet:
    variants = {name: dict(facts(comparison, name)) for name in comparison.names}
    qualified = {name: tuple(qualifications(comparison, name)) for name in comparison.names}
    return FairnessSheet(dict(shared(comparison)), variants, qualified)


def shared(comparison: Comparison) -> Iterator[tuple[str, str]]:
    swept = {} if comparison.sweep is None else comparison.sweep["values"]
    arguments = {**comparison.recipe.get("arguments", {}), **dict.fromkeys(swept, "(swept)")}
    yield "Shared", "data, tokenizer, held-out examples, recipe; the order of data, by seed"
    optimizer = {name: arguments[name] for name in ("optim", "learning_rate", "lr_scheduler_type") if name in arguments}
    yield "Optimiser", in_words(optimizer) or "AdamW with transformers' defaults"
    yield "Weight decay", f"{arguments.get('weight_decay', 0)} on {arguments.get('decay', DECAYS[0])}"
    budget = in_words(comparison.budget or {}) or in_words(
        {name: arguments[name] for name in ("max_steps", "num_train_epochs") if name in arguments}
    )
    yield "Budget", budget or "transformers' default"
    matched = {"none": "nothing", "params": "parameters", "flops": "FLOPs a token"}[comparison.match]
    yield "Matched", matched if comparison.match_to is None else f"{matched} of {comparison.match_to}"
    values = in_words({name: " ".join(map(str, tried)) for name, tried in swept.items()})
    yield "Swept", "nothing" if comparison.sweep is None else f"{values}; chosen with seed {comparison.sweep['seed']}"


def facts(comparison: Comparison, name: str) -> Iterator[tuple[str, str]]:
    """Conditions of one variant, by topic."""
    reports = [run.report for run in comparison.runs_of(name) if run.report is not None]
    if reports and all("train_tokens" in report for report in reports):
        means = {key: fmean(report[key] for report in reports) for key in ("train_tokens", "epochs")}
        yield "Trained on", f"{large(means['train_tokens'])} tokens, {means['epochs']:.3g} epochs"
    if comparison.sweep is not None:
        yield "Chosen by the sweep", in_words(swept_values(comparison, name))
        yield "Tried by the sweep", valley(comparison, name) or "nothing"
    yield "Sizes changed by matching", "; ".join(changed_sizes(comparison, name)) or "none"
    try:
        groups, made = decays(comparison, name), config(as_built(comparison, name))
    except ZooError as error:  # a variant of the user's own that is not there any more
        yield "Not known here", str(error)
        return
    yield "Decays", ", ".join(f"{role} {large(count)}" for role, count in groups.items()) or "nothing"
    start = comparison.recipe.get("init")
    yield "Initial values", start or f"{made.initializer}, initializer_range {made.initializer_range:.4g}"
    yield "At the start", "; ".join(starts(comparison, name)) or "as usual"
    yield "Tied output", "yes" if made.tie_word_embeddings else "no"
    yield "Dropout", in_words({field: getattr(made, field) for field in DROPOUTS if getattr(made, field)}) or "none"
    yield "Deviations from papers", " ".join(deviations_of(name)) or "none recorded"


def qualifications(comparison: Comparison, name: str) -> Iterator[str]:
    """Phrases that belong to the verdict of one variant."""
    for one, whose in {comparison.baseline: "the baseline's", name: "its"}.items():
        yield from (f"{whose} {phrase}" for phrase in starts(comparison, one))
        tried = values_tried(comparison, one)
        for argument, value in swept_values(comparison, one).items():
            if len(tried[argument]) > 2 and at_the_edge(value, tried[argument]):
                yield f"{whose} best {argument}, {value:g}, is at the edge of what was tried"
    yield from changed_sizes(comparison, name)
    if name == comparison.baseline:
        return
    try:
        unequal = set(decays(comparison, name)) ^ set(decays(comparison, comparison.baseline))
        deviations = deviations_of(name)
    except ZooError:
        return
    if unequal and any(arguments_of(comparison, one).get("weight_decay") for one in (name, comparison.baseline)):
        yield f"weight decay is not equal: its {enumerated(unequal)} decay in one of the two alone"
    yield from (f"deviation from its paper: {one.rstrip('.')}" for one in deviations)


def values_tried(comparison: Comparison, name: str) -> dict[str, list[Any]]:
    """The values that a sweep has tried for a variant, further ones included, by argument."""
    if comparison.sweep is None:
        return {}
    own = [run["values"] for run in comparison.sweep["runs"] if run["name"] == name]
    return {
        argument: united([one[argument] for one in own], ()) or values
        for argument, values in comparison.sweep["values"].items()
    }


def valley(comparison: Comparison, name: str) -> str:
    """Write a variant's trials with their losses, those of the longest training: "0.001: 2.310, 0.003: 2.250"."""
    own = [run for run in (comparison.sweep or {"runs": []})["runs"] if run["name"] == name]
    longest = {str(run["values"]): run for run in own}  # later ones are longer
    return "; ".join(
        f"{in_words(run['values'])}: {'failed' if run['loss'] is None else format(run['loss'], '.4f')} "
        f"({run.get('share', 1.0):.2g} of a run)"
        for run in longest.values()
    )


def changed_sizes(comparison: Comparison, name: str) -> list[str]:
    """Sizes that matching has changed: "hidden_size 72 in place of 64"."""
    matched = matched_sizes(comparison, name)
    try:
        before = config(as_built(comparison, name, matched=False)) if matched else None
    except ZooError:
        before = None
    return [
        f"{field} {value} in place of {getattr(before, field, 'another')}, by matching"
        for field, value in matched.items()
        if before is None or getattr(before, field, None) != value
    ]


def arguments_of(comparison: Comparison, name: str) -> dict[str, Any]:
    """Training arguments of a variant, with those that a sweep has chosen for it."""
    return {**comparison.recipe.get("arguments", {}), **swept_values(comparison, name)}


def starts(comparison: Comparison, name: str) -> tuple[str, ...]:
    """What is unequal in a variant's initial values, by `unequal_starts`; nothing where trained weights start it."""
    if comparison.recipe.get("init") is not None:
        return ()
    try:
        return starts_of(as_built(comparison, name), task_of(comparison))
    except ZooError:  # a variant of the user's own that is not there any more
        return ()


@cache
def starts_of(name: str, task: str | None) -> tuple[str, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(unequal_starts(build(name, task, seed=0)))


def task_of(comparison: Comparison) -> str | None:
    recipe = recipe_of(comparison)
    return None if recipe is None else str(recipe.data_task().model_task)


def decays(comparison: Comparison, name: str) -> Mapping[str, int]:
    """Numbers of a variant's parameters that weight decay applies to, by role."""
    rule = arguments_of(comparison, name).get("decay", DECAYS[0])
    return decay_groups(as_built(comparison, name), task_of(comparison), str(rule))


@cache
def decay_groups(name: str, task: str | None, decay: str) -> Mapping[str, int]:
    """Numbers of parameters that weight decay applies to, by role."""
    model = skeleton(name, task)
    roles, decayed = parameter_roles(model), set(decayed_parameters(model, decay))
    found: Counter[str] = Counter()
    for path, parameter in model.named_parameters():  # a tied parameter has a second path
        if path in decayed:
            found[str(roles[path])] += parameter.numel()
    return found


def in_words(values: Mapping[str, Any]) -> str:
    """Write settings: "learning_rate 0.001, optim muon"."""
    return ", ".join(f"{name} {value}" for name, value in values.items())
