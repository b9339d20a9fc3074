"""From a variant's name to its drawing."""

from __future__ import annotations

import dataclasses
from typing import Any

from zoo.building.builder import config as configure
from zoo.building.builder import skeleton
from zoo.registry import VARIANTS, parse_name

from .parts import Drawing
from .reading import Reader


def draw(name: str, task: str | None = None, **overrides: Any) -> Drawing:
    """Draw a variant.

    Args:
        name: Its name, possibly with settings: "vanilla", "vanilla+faithful", "pre-norm:position=rotary".
        task: Task of the model, by default the variant's first task.
        overrides: Fields of the configuration that differ from the variant's defaults.

    Returns:
        The drawing. Where quirks are switched on, its steps name those that change them.

    Raises:
        ZooError: When a name, task, quirk or field is unknown, or values contradict each other.
    """
    spec = parse_name(name)
    variant = VARIANTS.get(spec.name)
    quirks = variant.check_quirks(spec.quirks, faithful=spec.faithful)
    plain = str(dataclasses.replace(spec, quirks=(), faithful=False))
    marks: dict[str, tuple[str, ...]] = {}
    if quirks:
        # One layer shows as much as all, unless they differ.
        if not hasattr(configure(plain, task, **overrides), "layer_types"):
            shallow = {**overrides, "num_hidden_layers": 1, "decoder_layers": 1}
        else:
            shallow = overrides
        usual = Reader(skeleton(plain, task, **shallow)).signatures()
        for quirk in quirks:
            alone = Reader(skeleton(plain, task, quirks=(quirk,), **shallow)).signatures()
            for path, signature in alone.items():
                if usual.get(path) != signature:
                    marks[path] = (*marks.get(path, ()), quirk)
    reader = Reader(skeleton(name, task, **overrides), marks)
    return reader.draw(str(spec), variant.check_task(task))
