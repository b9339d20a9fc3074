"""A model at a glance: its card and its drawing."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.analysis.drawing import Drawing, draw
from zoo.analysis.own_settings import own_settings
from zoo.base.printed import Part, Printed, Title
from zoo.building.dispatch import load
from zoo.building.weights import is_saved
from zoo.converters.weights import task_of
from zoo.hub import is_address
from zoo.models import ZooPreTrainedModel
from zoo.models.capabilities import limits_of
from zoo.models.parts import deviations_of_parts
from zoo.models.wrapped import zoo_model
from zoo.registry import Card, Facts, describe

if TYPE_CHECKING:
    from zoo.building.literals import TaskName, VariantName


@dataclass(frozen=True)
class Portrait(Printed):
    """A variant's card and drawing."""

    card: Card  # Its variant's card, with its own settings and its own number of parameters
    drawing: Drawing  # Its blocks

    def shown(self) -> Iterator[Part]:
        yield from self.card.shown()
        yield Title(f"\nOne block, for {self.drawing.task}")
        yield from self.drawing.shown()


def show(model: VariantName | str | Path | ZooPreTrainedModel, task: TaskName | str | None = None) -> Portrait:
    """Show what a variant or a model is, with a drawing of its blocks: a picture in a notebook, text by `print`.

    Args:
        model: A variant's name, possibly with settings: "vanilla", "vanilla+faithful"; a model; or what [`zoo.load`][]
            takes: the name of weights, a checkpoint's folder, a repository on the Hub.
        task: Task of a variant, by default its first.

    Raises:
        InputError: When a model is not one of the zoo.
        ZooError: When a name, task, quirk or field is unknown, or the checkpoint does not exist.
    """
    if isinstance(model, os.PathLike) or (isinstance(model, str) and (is_saved(model) or is_address(model))):
        model = load(model, task)
    if isinstance(model, str):
        return Portrait(describe(model), draw(model, task))
    model = zoo_model(model)
    own_task = task_of(model)
    name, own = own_settings(model.config, own_task)
    card = describe(name)
    facts = Facts(model.num_parameters(), limits_of(model.config), deviations_of_parts(vars(model.config)))
    card = dataclasses.replace(card, settings={**card.settings, **own}, known=facts)
    return Portrait(card, draw(name, own_task, sizes="fixed", **own))
