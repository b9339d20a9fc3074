"""Transformers and their variants, one line away and interchangeable, as Hugging Face models.

Importing the zoo is cheap: torch and transformers are imported when a name that needs them is first used. It is also
enough for `transformers.AutoModel` and its siblings to load the zoo's checkpoints, whichever is imported first.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from zoo.hooks import AutoRegistration

if TYPE_CHECKING:
    from zoo.building import build, config
    from zoo.comparison import compare
    from zoo.converters import convert, export
    from zoo.difference import diff
    from zoo.evaluating import evaluate
    from zoo.generation import generate
    from zoo.hub import pull, push
    from zoo.labelling import predict
    from zoo.loading import load
    from zoo.quantizing import to_int8
    from zoo.registry import describe, list_variants, register
    from zoo.training import train

    __version__: str

#: Where each public name lives. To add one: a line here, and one above for the type checker.
_HOMES = {
    "build": "zoo.building",
    "compare": "zoo.comparison",
    "config": "zoo.building",
    "convert": "zoo.converters",
    "describe": "zoo.registry",
    "diff": "zoo.difference",
    "evaluate": "zoo.evaluating",
    "export": "zoo.converters",
    "generate": "zoo.generation",
    "list_variants": "zoo.registry",
    "load": "zoo.loading",
    "predict": "zoo.labelling",
    "pull": "zoo.hub",
    "push": "zoo.hub",
    "register": "zoo.registry",
    "to_int8": "zoo.quantizing",
    "train": "zoo.training",
}

__all__ = [
    "__version__",
    "build",
    "compare",
    "config",
    "convert",
    "describe",
    "diff",
    "evaluate",
    "export",
    "generate",
    "list_variants",
    "load",
    "predict",
    "pull",
    "push",
    "register",
    "to_int8",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("transformer-zoo")
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'zoo' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


AutoRegistration().install()
