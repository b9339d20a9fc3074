"""Weights of a test's own."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from zoo.building.weights import locate
from zoo.registry import WEIGHTS, Weights, find_weights, register_weights


@pytest.fixture
def copied(tmp_path: Path) -> Weights:
    """Weights that ship, in a folder of the test's own, as a plugin might bring them."""
    folder = tmp_path / "vanilla.mine"
    shutil.copytree(locate("vanilla.language"), folder)
    return replace(find_weights("vanilla.language"), name="vanilla.mine", source=str(folder))


@pytest.fixture
def registered(copied: Weights) -> Iterator[Weights]:
    """The same under a name of their own."""
    register_weights(copied)
    yield copied
    del WEIGHTS._items[copied.name]
