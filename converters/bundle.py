"""Bundles: a model with the code that it needs, for `trust_remote_code=True`.

The code is taken from the library's own files: the definitions that the model's settings need, without the branches
that they decide against. transformers loads one file for the configuration and one for the model.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import textwrap
from functools import cache, lru_cache, partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import libcst as cst

from zoo.analysis.syntax.modules import Place
from zoo.analysis.syntax.reading import code, names
from zoo.base.files import read_json
from zoo.base.formats import BUNDLE
from zoo.base.manifest import CODE_FILE
from zoo.models import TASK_CLASSES, ZooConfig, ZooPreTrainedModel
from zoo.models import parts as registries
from zoo.models.capabilities import limits_in_vllm
from zoo.models.fields import ANY, SETTINGS
from zoo.models.parts import NAMED_FIELDS, PART_FIELDS
from zoo.models.pretrained import BODIES
from zoo.registry import VARIANTS, Task

from .folding import Settings, WithoutTests, empty_attributes, folded
from .target import PLACE, TARGETS, ExportOptions, Target, TargetPlan
from .tree_shaking import OneFile, Shaker
from .verification import Difference, verify
from .weights import change_config, save_generation, task_of

MODELING, CONFIGURATION = "modeling_zoo", "configuration_zoo"  # The two files: `auto_map` names both
SEAM = "zoo.converters.bundle_seam"  # Definitions in the place of registries and fast paths

FILLED = ("zoo.models.pretrained", "BODIES")
"""A table of the modelling file, which is complete when that file has been read."""

REPLACED = (  # Modules with definitions that those of the seam replace
    *("zoo.registry", "zoo.fast.", "zoo.base.errors", "zoo.base.formats"),
    *("zoo.models.fields", "zoo.models.configuration", "zoo.models.context", "zoo.models.validation"),
    "zoo.models.mixers.base",
)

OPEN = ("sliding_window", "classifier_pooling", "classifier_bias")  # Settings that a bundle has all code for
EXTRAS = ("num_nextn_predict_layers",)  # Settings of no field that bring code of their own if they are not 0

TABLES = {name: table for name, table in vars(registries).items() if table in PART_FIELDS.values()}
"""The registries of parts, by their names in source code."""
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
        served = task_of(model) in (Task.CAUSAL_LM, Task.FEATURE_EXTRACTION) and not model.config.is_encoder_decoder
        limits = limits_in_vllm(model.config) if served else ()
        return TargetPlan(self.name, type(model).__name__, None, (), ("It brings its own code.", *limits))

    def write(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> None:
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
        return ("Load it with trust_remote_code=True: it brings its own code.", *plan.notes[1:])

    def usage(self, auto_class: str) -> str:
        return f"{self.load_with(auto_class, trust_remote_code=True)}\n{TOKENIZER_USAGE}"

    def sections(self, folder: Path) -> list[str]:
        return [code_section(folder)]


TARGETS.register(BundleTarget.name, BundleTarget())

CODE = """## Code

`trust_remote_code=True` runs the two files below on your machine. Before you trust them, compare the SHA-256 of your
copies with this table (`sha256sum *.py`), and read them: first the imports of both, which are of torch, transformers,
huggingface_hub and Python itself; then `{configuration}.py`, which checks settings, and `{modeling}.py`, in which
parts, layers, stacks and heads follow each other. Neither opens a file or a connection. They are the zoo's own
definitions without what this model does not use; the first lines name the version and the hash of their sources.
transformer-zoo itself loads this folder without them, and refuses it if they were edited.

| File | Lines | SHA-256 |
|---|---|---|
{rows}
"""


def code_section(folder: Path) -> str:
    listed = read_json(folder / CODE_FILE)["sha256"]
    counts = {name: len((folder / name).read_text(encoding="utf-8").splitlines()) for name in listed}
    rows = "\n".join(f"| `{name}` | {counts[name]:,} | `{digest}` |" for name, digest in listed.items())
    return CODE.format(configuration=CONFIGURATION, modeling=MODELING, rows=rows)


def write_bundle(model: ZooPreTrainedModel, folder: Path) -> None:
    config = model.config
    model.save_pretrained(folder)
    save_generation(model, folder)
    files = bundle_files(config)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    change_config(folder, {"providers": {}, "auto_map": auto_map(config)})
    manifest = {
        **BUNDLE.stamp,
        "transformer-zoo": version("transformer-zoo"),
        "variant": config.variant,
        "quirks": config.quirks,
        "sha256": {name: hashlib.sha256(files[name].encode()).hexdigest() for name in sorted(files)},
    }
    (folder / CODE_FILE).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def heads_of(config: ZooConfig) -> dict[str, type[ZooPreTrainedModel]]:
    tasks = {
        "encoder": (Task.MASKED_LM, Task.SEQUENCE_CLASSIFICATION, Task.TOKEN_CLASSIFICATION),
        "decoder": (Task.CAUSAL_LM, Task.SEQUENCE_CLASSIFICATION, Task.TOKEN_CLASSIFICATION),
        "encoder-decoder": (Task.SEQ2SEQ_LM,),
    }[config.stack]
    supported = VARIANTS.get(config.variant).tasks
    known = (task for task in (Task.FEATURE_EXTRACTION, *tasks) if task in supported or len(tasks) == 1)
    return dict(TASK_CLASSES[task] for task in known)


def auto_map(config: ZooConfig) -> dict[str, str]:
    found = {auto: f"{MODELING}.{head.__name__}" for auto, head in heads_of(config).items()}
    return {"AutoConfig": f"{CONFIGURATION}.ZooConfig", **found}


def fixed_settings(config: ZooConfig) -> dict[str, Any]:
    """Settings that may decide which code is in a bundle: parts, words, and mechanisms that are off."""
    names = [*NAMED_FIELDS, "quirks", "is_encoder_decoder"]
    if config.stack != "encoder-decoder":
        names += ["is_decoder", "add_cross_attention"]
    for name, one in SETTINGS.items():
        is_open = one.plain is ANY or one.usual or one.decoder_of or name in OPEN
        value = getattr(config, name)
        if one.changes in ("shapes", "numbers") and not is_open and (value is None or value is False or one.choices):
            names.append(name)
    fixed = {name: getattr(config, name) for name in names if name != "classifier_pooler_act"}
    return fixed | {name: 0 for name in EXTRAS if not getattr(config, name, 0)}


def bundle_files(config: ZooConfig) -> dict[str, str]:
    settings = Settings(config, fixed_settings(config))
    seam = set(Shaker(("zoo",)).module(SEAM).definitions)
    if config.mixer_layer_type is not None:
        seam.remove("Mixer")

    def replaces(module: str, name: str) -> bool:
        return module.startswith(REPLACED) and name in seam

    @cache
    def fold(definition: Place, statement: Any) -> list[Any]:
        return folded(definition, statement, settings)

    def fold_first(definition: Place, statement: Any) -> list[Any]:
        return [WithoutTests().visit(one) for one in fold(definition, statement)]

    # First without classes that only isinstance mentions, then without what reads them or attributes that are None.
    first = Shaker(own_packages(config), SEAM, replaces, fold_first, FILLED)
    keep(first, config)
    mentioned = {
        found
        for definition in first.kept
        for statement in first.module(definition[0]).definitions[definition[1]]
        for one in fold(definition, statement)
        for _, found in first.needs(definition[0], names(one).read)
    }
    missing = {name for _, name in mentioned - first.kept.keys()}
    missing |= set() if config.is_encoder_decoder else {"EncoderDecoderCache"}
    missing |= empty_attributes(code(one) for statements in first.kept.values() for one in statements)

    def fold_again(definition: Place, statement: Any) -> list[Any]:
        done = fold(definition, statement)
        mentions = any(not missing.isdisjoint((*names(one).read, *names(one).words)) for one in done)
        return folded(definition, statement, settings, missing) if mentions else done

    shaker = Shaker(own_packages(config), SEAM, replaces, fold_again, FILLED)
    configured, registered = keep(shaker, config)
    every = set(shaker.kept)
    order = reading_order(shaker)
    used = {name for definition in every for name in settings.decided.get(definition, ())}
    fixed = {name: value for name, value in settings.fixed.items() if name in used}
    modules = sorted({module for module, _ in every})
    digest = hashlib.sha256("".join(inspect.getsource(import_module(module)) for module in modules).encode())
    head = head_of(config, HEAD, count=len(modules), digest=digest.hexdigest())
    second = head_of(config, SECOND, file=CONFIGURATION)
    configuration = OneFile(shaker, configured, dict.fromkeys(every - configured, MODELING)).write(head, order)
    modeling = OneFile(shaker, every - configured, dict.fromkeys(configured, CONFIGURATION))
    return {
        f"{CONFIGURATION}.py": with_guard(configuration, fixed),
        f"{MODELING}.py": modeling.write(second, order, registrations(config, registered)),
    }


def own_packages(config: ZooConfig) -> list[str]:
    """The packages that a model's code is of: the zoo, and those of its variant and of its parts."""
    parts = (table.get(name) for _, table, name in config.named_parts())
    modules = [VARIANTS.get(config.variant).builder.__module__]
    modules += [getattr(part, "func", part).__module__ for part in parts]
    return [*dict.fromkeys(("zoo", *(one.partition(".")[0] for one in modules if not one.startswith(INSTALLED))))]


def keep(shaker: Shaker, config: ZooConfig) -> tuple[set[Place], dict[str, Any]]:
    shaker.keep("zoo.models.configuration", "ZooConfig")
    configured = set(shaker.kept)
    stacks = [config.stack] if config.stack != "encoder-decoder" else [*BODIES]
    bodies: dict[str, Any] = {f'BODIES["{stack}"]': BODIES[stack] for stack in stacks}
    shaker.keep(*FILLED)
    shaker.keep(SEAM, "Variant")
    for kept in (*heads_of(config).values(), *bodies.values(), VARIANTS.get(config.variant).builder):
        shaker.keep(kept.__module__, kept.__name__)
    return configured, bodies | registered_parts(shaker, config)


def reading_order(shaker: Shaker) -> list[str]:
    """Modules in the order in which they are read: what a module imports before it, heads last."""
    order: dict[str, None] = {}
    seen = set[str]()

    def visit(module: str) -> None:
        if module in seen:
            return
        seen.add(module)
        for source, name in shaker.module(module).imports.values():
            if (found := shaker.resolve(source, name)) is not None and found[0] in modules:
                visit(found[0])
        order[module] = None

    modules = dict.fromkeys(module for module, _ in shaker.kept)
    for module in ("zoo.models.configuration", *modules):
        visit(module)
    return list(order)


def with_guard(text: str, fixed: dict[str, Any]) -> str:
    """Let a configuration refuse settings that its code does not compute."""
    listed = ", ".join(f"{name!r}: {value!r}" for name, value in fixed.items()).replace("'", '"')
    listed = textwrap.fill(f"{listed},", 116, break_on_hyphens=False, break_long_words=False) + "\n"
    listed = textwrap.indent(listed, " " * 4)
    place, method = text.index("@in_the_zoos_words"), "    def __post_init__(self, **kwargs"
    guard = f"FIXED: dict[str, Any] = {{\n{listed}}}\n{GUARDED}\n\n\n"
    return text[:place] + guard + text[place:].replace(method, f"{GUARD}\n{method}", 1)


GUARDED = '"""Settings by which code was left out, for which other values are refused."""'
GUARD = '''    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse settings by which code was left out."""
        if name in FIXED and (value or None) != (FIXED[name] or None):
            raise ConfigError(
                f"{name}={value!r} was given, but these files have the code of {name}={FIXED[name]!r} alone; "
                "`pip install transformer-zoo` brings all"
            )
        super().__setattr__(name, value)
'''


def registrations(config: ZooConfig, registered: dict[str, Any]) -> str:
    lines, imports = [], []
    for table, part in registered.items():
        definition = part.func if isinstance(part, partial) else part
        text = definition.__name__
        if isinstance(part, partial):
            text = f"partial({', '.join((text, *(f'{name}={value!r}' for name, value in part.keywords.items())))})"
        if definition.__module__.startswith(INSTALLED):
            imports.append(f"from {definition.__module__} import {definition.__name__}  # noqa: E402")
        lines.append(f"{table} = {text}")
    builder = VARIANTS.get(config.variant).builder
    lines = [*dict.fromkeys(imports), "", *sorted(lines), f'VARIANTS["{config.variant}"] = Variant({builder.__name__})']
    return "\n".join(["# The parts that the configuration names", *lines]) + "\n"


HEAD = """The variant {variant!r} of transformer-zoo {version}, {source}.

Written by `zoo export --as bundle` out of the library's own files: their definitions in the order in which they are
read, without what this model does not use and without long descriptions. Import statements, registries, fast paths and
checks that transformers makes itself are replaced; no line computes anything that the library does not. SHA-256 of the
{count} files of the library, one after another: {digest}.

Before you trust it: the model card has the SHA-256 of both files, as bundle.json has. Nothing here opens files,
connections or processes; look at the imports, search for open, eval, exec and getattr, and read the forwards. Or
`pip install transformer-zoo` and load the folder with zoo.load, which runs none of this.
"""

SECOND = """The variant {variant!r} of transformer-zoo {version}: parts, layers, stacks, heads, in reading order.

{file}.py has the configuration, the origin of both files, and what to check before you trust them.
"""


def head_of(config: ZooConfig, template: str, **facts: Any) -> str:
    variant = VARIANTS.get(config.variant)
    facts |= {"version": version("transformer-zoo"), "source": variant.paper or variant.source}
    text = template.format(variant=config.variant, **facts)
    return '"""' + "\n\n".join(textwrap.fill(block, 120) for block in text.strip().split("\n\n")) + '\n"""'


def registered_parts(shaker: Shaker, config: ZooConfig) -> dict[str, Any]:
    """Keep the parts that a configuration names and those that they look up, by place: `POSITIONS["rotary"]`."""
    wanted = [(name, part) for name, table in TABLES.items() for _, of, part in config.named_parts() if of is table]
    found: dict[tuple[str, str], Any] = {}

    def look_ups() -> list[tuple[str, str]]:
        kept = (one for statements in shaker.kept.values() for one in statements)
        return sorted({pair for one in kept for pair in looked_up(one)} - {*wanted} - found.keys())

    wanted += look_ups()
    while wanted:
        table, name = wanted.pop()
        part = found[table, name] = TABLES[table].get(name)
        shaker.keep(registries.__name__, table)
        if not getattr(part, "func", part).__module__.startswith(INSTALLED):
            shaker.keep(*(shaker.resolve(part.__module__, part.__name__) or (part.__module__, part.__name__)))
            wanted += look_ups()
    return {f'{table}["{name}"]': found[table, name] for table, name in sorted(found)}


@lru_cache(maxsize=2**14)
def looked_up(node: cst.CSTNode) -> list[tuple[str, str]]:
    """Parts that a statement looks up by name: `NORMS.get("layernorm")`."""
    found = []
    for call in names(node).calls:
        match call:
            case cst.Call(cst.Attribute(cst.Name(table), cst.Name("get")), [cst.Arg(cst.SimpleString() as part)]) if (
                table in TABLES
            ):
                found.append((table, part.raw_value))
    return found
