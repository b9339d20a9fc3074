"""Variants with the settings of recipe, matching and sweep, if this process knows them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zoo.base.errors import ZooError
from zoo.models import ZooConfig
from zoo.registry import parse_name
from zoo.training import Recipe

from ..request.sweep import model_fields
from .comparison import Comparison


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
    """Find what was chosen for a variant."""
    return next((run.settings for run in comparison.runs_of(name)), {})


def matched_sizes(comparison: Comparison, name: str) -> dict[str, Any]:
    """Find the fields of the configuration that matching has chosen for a variant."""
    swept = () if comparison.sweep is None else comparison.sweep["values"]
    chosen = flat(settings_of(comparison, name)).items()
    return {key: value for key, value in chosen if key in ZooConfig.__dataclass_fields__ and key not in swept}


def as_built(comparison: Comparison, name: str, recipe: Recipe | None, *, matched: bool = True) -> str:
    """Add to a variant's name the settings of the recipe and of matching."""
    spec = parse_name(name)
    usual = {} if recipe is None else recipe.model_settings(name)
    if recipe is not None and "vocab_size" in recipe.tokenizer:
        usual = {**usual, "vocab_size": recipe.tokenizer["vocab_size"]}
    chosen = matched_sizes(comparison, name) if matched else {}
    if comparison.sweep is not None:
        swept = {
            key: value for key, value in settings_of(comparison, name).items() if key in comparison.sweep["values"]
        }
        chosen = {**chosen, **model_fields(swept)}
    return str(replace(spec, overrides={**usual, **spec.overrides, **chosen}))


def flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Take settings out of what they are grouped in."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value) if isinstance(value, dict) else {name: value}
    return found
