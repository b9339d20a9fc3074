"""Settings of a configuration, and those that differ from its variant's."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from zoo.base.errors import ConfigError
from zoo.building.builder import KEPT_BESIDE
from zoo.building.builder import config as configure
from zoo.building.loading import saved_class, saved_config, task_of_class
from zoo.building.weights import is_saved, locate
from zoo.models import ZooConfig
from zoo.models.fields import Fields
from zoo.models.parts import PART_FIELDS
from zoo.registry import VARIANTS, VariantSpec, parse_name

IDENTITY = frozenset({"variant", "quirks", "provider", "providers", "is_decoder", "is_encoder_decoder"})
"""Fields that identify a model and do not describe its architecture."""


def settings_of(config: ZooConfig) -> dict[str, Any]:
    """All settings of a configuration by name: its fields, and those of its variant and its parts."""
    parts = (registry.get(getattr(config, field)) for field, registry in PART_FIELDS.items())
    options = {name: value for part in parts for name, value in getattr(part, "options", {}).items()}
    names = dict.fromkeys((*Fields.__annotations__, *KEPT_BESIDE, *VARIANTS.get(config.variant).defaults, *options))
    return {name: getattr(config, name, options.get(name)) for name in names if name not in IDENTITY}


def own_settings(config: ZooConfig, task: str) -> tuple[str, dict[str, Any]]:
    """The name of a model's variant with its quirks, and the settings by which that is built as the model is."""
    name = str(VariantSpec(config.variant, quirks=tuple(config.quirks)))
    wanted = settings_of(config)
    own: dict[str, Any] = {}
    while True:  # a setting may be a default that follows from those that are given
        usual = settings_of(configure(name, task, sizes="fixed", **own))
        others = {field: value for field, value in wanted.items() if value != usual.get(field)}
        if others.keys() <= own.keys():
            return name, own
        own |= others


def resolve(name: str, task: str | None = None, spelled: Collection[str] = ()) -> tuple[str, str]:
    """The name of a variant with settings, and a task: those given, or of the architecture of saved weights.

    The settings of saved weights are those that the variant does not have by itself, and those to be spelled out.
    """
    if not is_saved(name):
        return str(parse_name(name)), VARIANTS.get(parse_name(name).name).check_task(task)
    folder = locate(name)
    config = saved_config(folder)
    own_task = task_of_class(saved_class(folder, config))
    if task not in (None, own_task):
        raise ConfigError(f"task {task!r} was given, and the model in {name} is for {own_task}: leave the task out")
    variant, own = own_settings(config, own_task)
    more = {key: value for key, value in settings_of(config).items() if key in spelled}
    return str(replace(parse_name(variant), overrides={**more, **own, "sizes": "fixed"})), own_task
