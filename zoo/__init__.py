"""Transformers and their variants, one line away and interchangeable, as Hugging Face models.

Importing the zoo is cheap: torch and transformers are imported when a name that needs them is first used. It is also
enough for `transformers.AutoModel` and its siblings to load the zoo's checkpoints, whichever is imported first.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if find_spec("zoo.registry") is None:
    # A script in the root of a checkout that is not installed as editable finds the checkout's zoo before the installed
    # one; there these packages are next to it.
    __path__.append(str(Path(__file__).parents[1]))

from zoo.base.auto_registration import AutoRegistration
from zoo.base.lazy import declared_in

if TYPE_CHECKING:
    from zoo import (  # noqa: I001 - one statement for all of them
        analysis as analysis,
        base as base,
        building as building,
        comparison as comparison,
        converters as converters,
        data as data,
        fast as fast,
        hub as hub,
        inside as inside,
        models as models,
        registry as registry,
        serving as serving,
        testing as testing,
        training as training,
        variants as variants,
    )
    from zoo.base.errors import ZooError, ZooWarning
    from zoo.comparison.benchmarks import bench
    from zoo.comparison.benchmarks.claims import claims
    from zoo.building.builder import config
    from zoo.comparison import compare
    from zoo.converters import convert, export
    from zoo.analysis.diff import diff
    from zoo.analysis.eject import eject
    from zoo.building.dispatch import build, load
    from zoo.training.evaluate import evaluate
    from zoo.training.generation import accelerate, generate
    from zoo.hub import pull, push
    from zoo.training.predict import predict
    from zoo.analysis.source_listing import show_code
    from zoo.building.quantizing import to_int8
    from zoo.registry import describe, list_variants, list_weights, register, register_weights
    from zoo.analysis.scaling import plan
    from zoo.inside.show import show
    from zoo.training import train

    __version__: str

#: The names above, imported when first used: submodules, and what `__all__` lists by its home.
_DECLARED = declared_in(__file__)
_SUBMODULES = _DECLARED.pop("zoo")
_HOMES = {name: home for home, names in _DECLARED.items() for name in names}

__all__ = [
    "ZooError",
    "ZooWarning",
    "__version__",
    "accelerate",
    "bench",
    "build",
    "claims",
    "compare",
    "config",
    "convert",
    "describe",
    "diff",
    "eject",
    "evaluate",
    "export",
    "generate",
    "list_variants",
    "list_weights",
    "load",
    "plan",
    "predict",
    "pull",
    "push",
    "register",
    "register_weights",
    "show",
    "show_code",
    "to_int8",
    "train",
]


def _look_up(name: str) -> Any:
    """Import a public name's home, or a submodule, when it is first used."""
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("transformer-zoo")
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"zoo.{name}")
    else:
        raise AttributeError(f"module 'zoo' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*_SUBMODULES, *__all__})


if not TYPE_CHECKING:
    __getattr__ = _look_up  # type checkers, which would take any name for one of these, do not see it

AutoRegistration().install()
