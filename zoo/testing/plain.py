"""The check of plain forms, of which `zoo eject` makes a file."""

from __future__ import annotations

from zoo.base.errors import UnsupportedOperationError
from zoo.models.parts import PART_FIELDS

from .cases import check
from .subjects import Subject


@check()
def check_plain_forms_of_plugins_compute_the_same(subject: Subject) -> None:
    """A model with a plugin's part that names a plain form is ejected, and the file computes what the model does."""
    parts = {field: (registry, getattr(subject.config, field)) for field, registry in PART_FIELDS.items()}
    foreign = [registry.get(name) for registry, name in parts.values() if not registry.origin(name).built_in]
    if foreign and all(hasattr(part, "plain") for part in foreign):
        from zoo.analysis.eject import eject

        try:
            eject(subject.copy())
        except UnsupportedOperationError as error:
            raise AssertionError(str(error)) from error
