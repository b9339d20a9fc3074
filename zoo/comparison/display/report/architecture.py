"""In what each variant differs from the baseline, as far as this process knows the variants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from zoo.analysis.diff import diff, tasks_of
from zoo.analysis.drawing import draw, to_svg_beside
from zoo.base.errors import ZooError

from ...results.as_built import as_built, flat, recipe_of, settings_of
from ...results.comparison import Comparison

KINDS = {"setting": "setting", "quirk": "quirk", "code": "code"}
"""Facts about a variant; its size as trained is in the table of results."""


OF_THE_TOKENIZER = ("vocab_size", "decoder_vocab_size")
"""Settings that all variants have here, whatever their defaults."""


@dataclass(frozen=True)
class Contrast:
    """A "setting", "quirk" or "code" in which a variant differs from the baseline."""

    kind: str
    name: str
    baseline: str
    own: str


@dataclass(frozen=True)
class Architecture:
    """How a variant is built."""

    place: int
    name: str
    axes: list[Contrast]  # In what it differs from the baseline
    chosen: dict[str, str]  # Settings that matching, a sweep or the budget chose for it and not for all
    unknown: str  # Why the axes are not known, empty where they are
    drawing: Markup  # The baseline and the variant side by side, as SVG; empty where there is nothing to see


def architectures_of(comparison: Comparison) -> list[Architecture]:
    """Compare each variant with the baseline."""
    recipe = recipe_of(comparison)
    task = None if recipe is None else str(recipe.data_task().model_task)
    settings = [flat(settings_of(comparison, name)) for name in comparison.names]
    differing = {key for one in settings for key in one if any(other.get(key) != one[key] for other in settings)}
    found = []
    for place, name in enumerate(comparison.names):
        axes, unknown, drawing = [], "", Markup()
        try:
            if name != comparison.baseline:
                baseline, own = (as_built(comparison, one, recipe) for one in (comparison.baseline, name))
                axes = [
                    Contrast(one.kind, one.axis, side(one.kind, one.a), side(one.kind, one.b))
                    for one in diff(baseline, own, task)
                    if one.kind in KINDS and one.axis not in OF_THE_TOKENIZER
                ]
                tasks = tasks_of(baseline, own, task)
                sides = (
                    replace(draw(baseline, tasks[0]), name=comparison.baseline),
                    replace(draw(own, tasks[1]), name=name),
                )
                drawing = Markup(to_svg_beside(*sides))
        except ZooError as error:  # a variant of the user's own that is not there any more
            unknown = str(error)
        chosen = {
            key: in_words(value) for key, value in flat(settings_of(comparison, name)).items() if key in differing
        }
        found.append(Architecture(place, name, axes, chosen, unknown, drawing))
    return found


def side(kind: str, value: Any) -> str:
    """Write what one of two variants has: "on" or "off" for a quirk."""
    if kind == "quirk":
        return "on" if value else "off"
    return in_words(value)


def in_words(value: Any) -> str:
    """Write a setting: "yes", "no", "none", or its value."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} = {in_words(one)}" for name, one in value.items())
    return ", ".join(map(in_words, value)) if isinstance(value, list | tuple) else str(value)
