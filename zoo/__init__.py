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
    # one, and there these packages lie beside it.
    __path__.append(str(Path(__file__).parents[1]))

from zoo.hooks import AutoRegistration

if TYPE_CHECKING:
    from zoo import (  # noqa: I001 - one statement for all of them
        answers as answers,
        benchmarks as benchmarks,
        building as building,
        comparison as comparison,
        completion as completion,
        converters as converters,
        difference as difference,
        dispatch as dispatch,
        doctor as doctor,
        drawing as drawing,
        environment as environment,
        errors as errors,
        evaluating as evaluating,
        explorer as explorer,
        fast as fast,
        files as files,
        fingerprints as fingerprints,
        folders as folders,
        generation as generation,
        hooks as hooks,
        hub as hub,
        inside as inside,
        keywords as keywords,
        labelling as labelling,
        listing as listing,
        literals as literals,
        loading as loading,
        making as making,
        manifest as manifest,
        measuring as measuring,
        models as models,
        new_plugin as new_plugin,
        parameters as parameters,
        quantizing as quantizing,
        registry as registry,
        scaling as scaling,
        serving as serving,
        settings as settings,
        showing as showing,
        synonyms as synonyms,
        tasks as tasks,
        testing as testing,
        tokenizers as tokenizers,
        training as training,
        variants as variants,
        weights as weights,
    )
    from zoo.benchmarks import bench
    from zoo.benchmarks.claims import claims
    from zoo.building import config
    from zoo.comparison import compare
    from zoo.converters import convert, export
    from zoo.difference import diff
    from zoo.dispatch import build, load
    from zoo.evaluating import evaluate
    from zoo.generation import accelerate, generate
    from zoo.hub import pull, push
    from zoo.labelling import predict
    from zoo.listing import show_code
    from zoo.quantizing import to_int8
    from zoo.registry import describe, list_variants, list_weights, register, register_weights
    from zoo.scaling import plan
    from zoo.showing import show
    from zoo.training import train

    __version__: str

#: The submodules for users, imported when first used. To add one: a word here, and a line above for the type checker.
_SUBMODULES = (
    "answers",
    "benchmarks",
    "building",
    "comparison",
    "completion",
    "converters",
    "difference",
    "dispatch",
    "doctor",
    "drawing",
    "environment",
    "errors",
    "evaluating",
    "explorer",
    "fast",
    "files",
    "fingerprints",
    "folders",
    "generation",
    "hooks",
    "hub",
    "inside",
    "keywords",
    "labelling",
    "listing",
    "literals",
    "loading",
    "making",
    "manifest",
    "measuring",
    "models",
    "new_plugin",
    "parameters",
    "quantizing",
    "registry",
    "scaling",
    "serving",
    "settings",
    "showing",
    "synonyms",
    "tasks",
    "testing",
    "tokenizers",
    "training",
    "variants",
    "weights",
)

#: Where each public name lives. To add one: a line here, and one above for the type checker.
_HOMES = {
    "accelerate": "zoo.generation",
    "bench": "zoo.benchmarks",
    "build": "zoo.dispatch",
    "claims": "zoo.benchmarks.claims",
    "compare": "zoo.comparison",
    "config": "zoo.building",
    "convert": "zoo.converters",
    "describe": "zoo.registry",
    "diff": "zoo.difference",
    "evaluate": "zoo.evaluating",
    "export": "zoo.converters",
    "generate": "zoo.generation",
    "list_variants": "zoo.registry",
    "list_weights": "zoo.registry",
    "load": "zoo.dispatch",
    "plan": "zoo.scaling",
    "predict": "zoo.labelling",
    "pull": "zoo.hub",
    "push": "zoo.hub",
    "register": "zoo.registry",
    "register_weights": "zoo.registry",
    "show": "zoo.showing",
    "show_code": "zoo.listing",
    "to_int8": "zoo.quantizing",
    "train": "zoo.training",
}

__all__ = [
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
