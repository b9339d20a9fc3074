"""Settings that were given, and that a model does not read."""

from __future__ import annotations

import warnings
from typing import Any

from zoo.base.errors import ZooWarning
from zoo.models import ZooConfig
from zoo.models.fields import SETTINGS
from zoo.models.parts import PART_FIELDS
from zoo.registry import VARIANTS, parse_name


def warn_of_unread(config: ZooConfig, name: str, task: str, overrides: dict[str, Any]) -> None:
    """Warn of settings that differ from a variant's own and change nothing: the model is the same without them.

    Args:
        config: The model's settings.
        name: Variant's name, possibly with settings.
        task: The model's task.
        overrides: Further settings that were given.
    """
    spec = parse_name(name)
    own = VARIANTS.get(spec.name).settings(task, preset=spec.preset, quirks=config.quirks)
    given = {field: value for field, value in {**spec.overrides, **overrides}.items() if field in SETTINGS}
    changed = (field for field, value in given.items() if own.get(field, SETTINGS[field].default) != value)
    if unread := [f"{field}={given[field]}" for field in changed if not is_read(field, config, task)]:
        warnings.warn(f"a model of {spec.name!r} for {task} does not read {', '.join(unread)}", ZooWarning, 4)


def is_read(field: str, config: ZooConfig, task: str) -> bool:
    """Whether a setting can change a model for a task with the other settings of a configuration."""
    setting = SETTINGS[field]
    if setting.changes not in ("shapes", "numbers"):
        return True
    parts = [registry.get(getattr(config, part)) for part, registry in PART_FIELDS.items()]
    if any(field in part.unread(config) for part in parts if hasattr(part, "unread")):
        return False
    return setting.is_read(task) and setting.is_read_in(config)
