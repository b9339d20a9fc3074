"""Bundles: a model with the code that it needs, for `trust_remote_code=True`.

The code is taken from the library's own files: of each, the definitions that the model's variant needs, with imports
rewritten for a flat folder, as transformers wants it.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from zoo.base.formats import BUNDLE
from zoo.models import TASK_CLASSES, ZooConfig, ZooPreTrainedModel
from zoo.models import parts as registries
from zoo.models.capabilities import limits_in_vllm
from zoo.models.parts import PART_FIELDS, named_parts
from zoo.models.pretrained import BODIES
from zoo.registry import VARIANTS, Task

from . import bundle_registry
from .target import PLACE, TARGETS, ExportOptions, Target, TargetPlan
from .tree_shaking import Shaker, write_module
from .verification import Difference, verify
from .weights import save_generation, task_of

ENTRY = "modeling"
"""The module that `auto_map` names."""

REGISTRY = "zoo.registry"
TABLES = {name: table for name, table in vars(registries).items() if table in PART_FIELDS.values()}
"""The registries of parts, by their names in source code."""
MANIFEST = BUNDLE.place
INSTALLED = ("torch.", "transformers.")
"""Modules that a bundle imports and does not bring: transformers has most activations."""

TOKENIZER_USAGE = f"""A tokenizer in this folder needs no code. With `trust_remote_code=False` transformers loads it
without a question; without that argument it asks, as it reads the model's configuration first:

```python
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{PLACE}", trust_remote_code=False)
```
"""
"""Code of a card that loads the tokenizer: `AutoTokenizer` asks for every folder with code for `AutoConfig`."""


class BundleTarget(Target):
    """A checkpoint with the code that it needs, which is the target that every variant has."""

    name = "bundle"
    summary = "the weights with the code that they need, for `trust_remote_code=True`: every variant"

    def plan(self, model: ZooPreTrainedModel) -> TargetPlan:
        """State that it always works."""
        served = task_of(model) in (Task.CAUSAL_LM, Task.FEATURE_EXTRACTION) and not model.config.is_encoder_decoder
        limits = limits_in_vllm(model.config) if served else ()
        return TargetPlan(self.name, type(model).__name__, None, (), ("It brings its own code.", *limits))

    def write(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> None:
        """Write weights, configuration and code."""
        write_bundle(model, folder)

    def check(
        self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions
    ) -> Difference | None:
        """Load it where the zoo cannot be imported: anywhere else that would mean nothing."""
        if not options.fresh_process:
            return None
        auto_class = TASK_CLASSES[task_of(model)][0]
        return verify(model, folder, auto_class, self.output(model, plan), trust_remote_code=True)

    def notes(self, plan: TargetPlan, options: ExportOptions) -> tuple[str, ...]:
        """Describe how it is loaded."""
        return ("Load it with trust_remote_code=True: it brings its own code.", *plan.notes[1:])

    def usage(self, auto_class: str) -> str:
        """State that its code has to be trusted, and that its tokenizer needs none."""
        return f"{self.load_with(auto_class, trust_remote_code=True)}\n{TOKENIZER_USAGE}"


TARGETS.register(BundleTarget.name, BundleTarget())


def write_bundle(model: ZooPreTrainedModel, folder: Path) -> None:
    """Write weights, configuration and code."""
    config = model.config
    model.save_pretrained(folder)
    if model.can_generate():
        save_generation(model, folder)
    files = bundle_files(config)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    path = folder / "config.json"
    saved = json.loads(path.read_text(encoding="utf-8"))
    saved |= {"providers": {}, "auto_map": auto_map(config)}
    path.write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    manifest = {
        **BUNDLE.stamp,
        "transformer-zoo": version("transformer-zoo"),
        "variant": config.variant,
        "quirks": config.quirks,
        "sha256": {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in sorted(files)},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def heads_of(config: ZooConfig) -> dict[str, type[ZooPreTrainedModel]]:
    """Classes for the stack of a configuration."""
    tasks = {
        "encoder": (Task.MASKED_LM, Task.SEQUENCE_CLASSIFICATION, Task.TOKEN_CLASSIFICATION),
        "decoder": (Task.CAUSAL_LM, Task.SEQUENCE_CLASSIFICATION, Task.TOKEN_CLASSIFICATION),
        "encoder-decoder": (Task.SEQ2SEQ_LM,),
    }[config.stack]
    supported = VARIANTS.get(config.variant).tasks
    return dict(
        TASK_CLASSES[task] for task in (Task.FEATURE_EXTRACTION, *tasks) if task in supported or len(tasks) == 1
    )


def auto_map(config: ZooConfig) -> dict[str, str]:
    """Where transformers finds the classes."""
    found = {auto: f"{ENTRY}.{head.__name__}" for auto, head in heads_of(config).items()}
    return {"AutoConfig": "configuration.ZooConfig", **found}


def bundle_files(config: ZooConfig) -> dict[str, str]:
    """The code that a model needs, by file name."""
    variant = VARIANTS.get(config.variant)
    builder = variant.builder
    own = dict.fromkeys(("zoo", builder.__module__.partition(".")[0]))
    shaker = Shaker(own, replaced=[REGISTRY])
    for package in ("zoo.models.encoder_decoder", "zoo.models.pretrained"):
        shaker.module(package)
    for head in (*heads_of(config).values(), BODIES[config.stack], ZooConfig):
        shaker.keep(head.__module__, head.__name__)
    shaker.keep(builder.__module__, builder.__name__)
    shaker.keep(REGISTRY, "register")
    facts = f"source={variant.source!r}, paper={variant.paper!r}"
    registered = {f"register({variant.name!r}, {facts})": builder, **registered_parts(shaker, config)}

    names = flat_names(shaker.kept)
    files = {f"{names[module]}.py": write_module(shaker, module, names) for module in shaker.kept if module != REGISTRY}
    files[f"{names[REGISTRY]}.py"] = inspect.getsource(bundle_registry)
    needed = {(REGISTRY, "register")}
    needed |= {(registries.__name__, call.split(".")[0]) for call in registered if call.startswith(tuple(TABLES))}
    calls = []
    for call, thing in registered.items():
        definition = thing.func if isinstance(thing, partial) else thing
        needed.add((definition.__module__, definition.__name__))
        text = definition.__name__
        if isinstance(thing, partial):
            needed.add(("functools", "partial"))
            text = f"partial({', '.join((text, *(f'{name}={value!r}' for name, value in thing.keywords.items())))})"
        calls.append(f"{call}({text})\n")
    places = {module: f".{name}" for module, name in names.items()}
    imports = [f"from {places.get(module, module)} import {name}  # noqa: E402\n" for module, name in sorted(needed)]
    filling = [(module, min(shaker.kept[module])) for module, effects in shaker.kept_effects.items() if effects]
    files[f"{ENTRY}.py"] = entry(config, names, filling)
    files["configuration.py"] = with_registrations(files["configuration.py"], "".join((*imports, *calls)))
    return files


def registered_parts(shaker: Shaker, config: ZooConfig) -> dict[str, Any]:
    """Keep the parts that a configuration names, and those that they look up themselves.

    Args:
        shaker: Keeps them.
        config: A complete configuration.

    Returns:
        The parts, by the call that registers each: `POSITIONS.register('rotary')`.
    """
    wanted = [
        (name, part) for name, table in TABLES.items() for _, known, part in named_parts(config) if known is table
    ]
    found: dict[str, Any] = {}
    read: set[tuple[str, str]] = set()

    def look_ups() -> Iterator[tuple[str, str]]:
        new = {(m, n) for m, names in shaker.kept.items() for n in names if m != REGISTRY} - read
        read.update(new)
        return (pair for module, defined in new for pair in looked_up(shaker, module, defined))

    wanted += look_ups()
    while wanted:
        table, name = wanted.pop()
        call = f"{table}.register({name!r})"
        if call in found:
            continue
        part = found[call] = TABLES[table].get(name)
        shaker.keep(registries.__name__, table)
        if getattr(part, "func", part).__module__.startswith(INSTALLED):
            continue
        shaker.keep(part.__module__, part.__name__)
        wanted += look_ups()
    return dict(sorted(found.items()))


def looked_up(shaker: Shaker, module: str, name: str) -> list[tuple[str, str]]:
    """Parts that a definition looks up by name: `NORMS.get("layernorm")`."""
    found = []
    for statement in shaker.module(module).definitions[name]:
        for node in ast.walk(statement):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id=table), attr="get"), args=[ast.Constant(value=str(part))]
                ) if table in TABLES:
                    found.append((table, part))
    return found


def flat_names(modules: dict[str, set[str]]) -> dict[str, str]:
    """Give every module a name in a flat folder."""
    names: dict[str, str] = {}
    for module in sorted(modules, key=lambda module: (not module.startswith("zoo.models"), module)):
        short = module.rpartition(".")[2]
        taken = {*names.values(), ENTRY}
        names[module] = short if short not in taken else module.replace(".", "_")
    return names


def with_registrations(text: str, statements: str) -> str:
    """Let the configuration import and register the parts that it looks up."""
    return f"{text}\n\n# The builder and the parts need ZooConfig, so they come last.\n{statements}"


def entry(config: ZooConfig, names: dict[str, str], filling: list[tuple[str, str]]) -> str:
    """Write the module that `auto_map` names."""
    builder = VARIANTS.get(config.variant).builder
    needed = {(head.__module__, head.__name__) for head in (*heads_of(config).values(), BODIES[config.stack])}
    needed |= {(builder.__module__, builder.__name__), *filling}
    imports = sorted(f"from .{names[module]} import {name}" for module, name in needed)
    exported = sorted(["ZooConfig", *(name for _, name in needed)])
    return f'''"""The variant {config.variant!r} of transformer-zoo {version("transformer-zoo")}.

These files were made from the library's own, of which they hold what this model needs.
"""

# First, as the variant needs ZooConfig, and the configuration imports the variant at its end.
from .configuration import ZooConfig  # isort: skip
{chr(10).join(imports)}

__all__ = {exported!r}
'''
