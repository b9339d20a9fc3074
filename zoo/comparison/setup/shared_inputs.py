"""Inputs that all runs of a comparison share: data, tokenizer, workload and sources."""

from __future__ import annotations

import ast
import math
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.machinery import PathFinder
from importlib.util import find_spec, resolve_name
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from datasets import Dataset
from transformers import PreTrainedModel

import zoo.registry
from zoo.analysis.measuring import FlopsPerToken, flops_per_token
from zoo.analysis.own_settings import own_settings
from zoo.base.errors import ConfigError, ZooError
from zoo.base.folders import MODEL_FILE
from zoo.base.formats import installed_version
from zoo.building.builder import config, skeleton
from zoo.building.weights import locate
from zoo.data.tasks import DataTask, Splits, Tokenizers, load_tokenizers
from zoo.data.tasks.streaming import is_streamed
from zoo.models import ZooConfig
from zoo.models.fields import SETTINGS
from zoo.registry.plugins import Origin
from zoo.training import Recipe
from zoo.training.after_steps import ENDLESS
from zoo.training.arguments import ZooTrainingArguments, training_arguments
from zoo.training.inputs import build_for, encode, model_settings, tokenizers_for
from zoo.training.preflight import check_data, measure
from zoo.training.record import digest_of_examples
from zoo.training.sampling import order_of_blocks, tokens_in

from ..files import TOKENIZER, content_hash, digest_of_files, digest_of_named
from ..request.seeds import Budget


@dataclass(frozen=True)
class Workload:
    """The workload of an update."""

    steps: int  # Updates that the recipe wants
    # Tokens in the mean update, counted as the trainer counts them: without padding, and of source and target if
    # it has both
    tokens_per_step: float
    source_len: int  # Tokens in the mean example that is read
    target_len: int | None  # Tokens in the mean example that a decoder with an encoder writes, None without


def workload(encoded: Any, args: ZooTrainingArguments, *, writes: bool) -> Workload:
    if is_streamed(encoded):
        raise ConfigError("a comparison reads shards, which are encoded once for all of its runs: leave streaming out")
    size, order = args.train_batch_size * args.world_size, order_of_blocks(encoded, args)
    read = len(encoded if order is None else order)
    batches = max(1, read // size if args.dataloader_drop_last else math.ceil(read / size))
    steps_per_epoch = math.ceil(batches / args.gradient_accumulation_steps)
    source, target = (sizes(encoded, column) for column in ("input_ids", "labels"))
    padded = 1.0 if isinstance(encoded, Dataset) else tokens_in(encoded) / float(encoded.lengths.sum())
    tokens = padded * float(source.sum() + (target.sum() if writes else 0))
    return Workload(
        steps=args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * steps_per_epoch),
        tokens_per_step=tokens * min(read, batches * size) / len(encoded) / steps_per_epoch,
        source_len=max(1, round(float(source.mean()))),
        target_len=max(1, round(float(target.mean()))) if writes else None,
    )


def sizes(encoded: Any, column: str) -> npt.NDArray[Any]:
    """Number of ids of each example, of blocks in proportion to the first one. *Shape:* (num_examples,)."""
    if isinstance(encoded, Dataset):
        return measure(encoded, column)[0]
    return np.asarray(encoded.lengths) * (np.size(encoded[0][column]) / encoded.lengths[0])


def spend(budget: Budget, work: Workload, flops_per_token: float) -> dict[str, Any]:
    if budget.kind == "seconds":
        return {"max_steps": ENDLESS}
    cost = {"steps": 1.0, "tokens": work.tokens_per_step, "flops": work.tokens_per_step * flops_per_token}[budget.kind]
    steps = round(budget.amount / cost)
    if steps < 1:
        raise ConfigError(f"the budget {budget} is less than one update, which takes {cost:,.0f} {budget.kind}")
    return {"max_steps": steps}


def share_of_warmup(warmup_steps: float, steps: int) -> dict[str, Any]:
    """Turn a warm-up that was meant for a run of `steps` into its share of any run, if it is not one already."""
    return {"warmup_steps": min(round(warmup_steps / steps, 6), 0.99) if warmup_steps >= 1 else warmup_steps}


def share_of_decay(options: Mapping[str, Any] | None, steps: int) -> dict[str, Any]:
    """Turn the decay of "warmup_stable_decay" in a run of `steps` into its share likewise; empty if it is one."""
    decay = (options or {}).get("num_decay_steps", 0)
    share = min(round(decay / steps, 6), 0.99)
    return {"lr_scheduler_kwargs": {**(options or {}), "num_decay_steps": share}} if decay >= 1 else {}


OWN = ("building", "data", "fast", "models", "training", "variants")
"""The rooms that build, train and score a model. An edit elsewhere changes no result."""

STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib")).resolve()

INSTALLED = ("site-packages", "dist-packages")
"""Folders of installed distributions, which are identified by their versions."""


@cache
def digest_of_the_zoo() -> str:
    """Short hash of the zoo's own source, so that runs are repeated after an edit that may change them."""
    folder, registry = (Path(module.__file__ or "").parent for module in (zoo, zoo.registry))
    rooms = [*((folder, folder / name) for name in OWN), (registry, registry)]
    own = ((root, file) for root, room in rooms for file in room.rglob("*.py"))
    return digest_of_named({file.relative_to(root.parent).as_posix(): file for root, file in own})


def digest_of_modules(modules: Iterable[str]) -> str:
    """Make a short name for the source of modules, and of what they import that is neither Python's nor installed."""
    return digest_of_named({name: file for module in modules for name, file in sources_of(module)})


def sources_of(module: str) -> Iterator[tuple[str, Path]]:
    """Follow imports from a module."""
    package = module.partition(".")[0]
    waiting, seen = [module], set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen and (file := _file_of(name)) is not None and _is_a_users(name, file, package):
            yield name, file
            waiting += imported_by(name, file)
        seen.add(name)


def imported_by(module: str, file: Path) -> Iterator[str]:
    """List what a module imports, in functions too."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            relative = "." * node.level + (node.module or "")
            base = resolve_name(relative, package) if node.level else relative
            yield from _with_parents(base)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _with_parents(name: str) -> Iterator[str]:
    """A module and its packages, in the order of import."""
    return accumulate(name.split("."), "{}.{}".format)


def _file_of(name: str) -> Path | None:
    """The source of a module, found without importing anything; None without one."""
    top, *rest = name.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return None
    for depth in range(len(rest)):
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(".".join((top, *rest[: depth + 1])), spec.submodule_search_locations)
    return Path(spec.origin) if spec is not None and spec.origin is not None and spec.origin.endswith(".py") else None


def _is_a_users(name: str, file: Path, package: str) -> bool:
    """Whether a module is of a package, or neither the zoo's, nor Python's, nor of an installed distribution."""
    place, top = file.resolve(), name.partition(".")[0]
    installed = place.is_relative_to(STANDARD_LIBRARY) or any(folder in place.parts for folder in INSTALLED)
    return top == package or (top != "zoo" and not installed)


INCIDENTAL = ("transformers_version", "_name_or_path")  # Fields of a configuration that decide nothing


@dataclass(frozen=True)
class SharedInputs:
    """Inputs that all runs share."""

    recipe: Recipe  # How to train, before anything is matched or budgeted
    task: DataTask  # The task, fitted to the data
    splits: Splits
    tokenizers: Tokenizers
    folder: Path

    @cached_property
    def encoded(self) -> Splits:
        return encode(self.task, self.splits, self.tokenizers, seed=0)

    @cached_property
    def arguments(self) -> ZooTrainingArguments:
        return training_arguments(self.recipe.arguments, output_dir=self.folder, seed=0)

    @cached_property
    def work(self) -> Workload:
        return self.work_with({})

    def work_with(self, sizes: Mapping[str, Any]) -> Workload:
        """The workload with other training arguments that set the size of an update."""
        args = training_arguments({**self.recipe.arguments, **sizes}, output_dir=self.folder, seed=0)
        return workload(self.encoded.train, args, writes=self.task.model_task == "seq2seq-lm")

    @cached_property
    def digests(self) -> dict[str, Any]:
        """Short names of data, tokenizers, and the weights that training starts from, if any."""
        found: dict[str, Any] = {"data": [digest_of_examples(part) for part in self.splits]}
        found["tokenizer"] = digest_of_files(self.folder / TOKENIZER)
        if self.recipe.init is not None:
            folder = locate(self.recipe.init)
            files = (*folder.glob(MODEL_FILE), *folder.glob("*.safetensors"))
            found["init"] = digest_of_named({file.name: file for file in files})
        return found

    def data_settings(self, variant: str) -> dict[str, Any]:
        """Fields of configurations that follow from data, tokenizers, and the weights that training starts from."""
        found = self.task.model_settings(self.tokenizers)
        if self.recipe.init is not None:
            _, own = own_settings(self.skeleton(variant).config, self.task.model_task)
            found = {**own, **found}
        kinds = (str, int, float)
        return {name: value for name, value in found.items() if name in SETTINGS and isinstance(value, kinds)}

    def settings(self, variant: str) -> dict[str, Any]:
        return model_settings(self.task, variant, self.tokenizers, self.recipe)

    def config(self, variant: str) -> ZooConfig:
        return config(variant, self.task.model_task, **self.settings(variant))

    def skeleton(self, variant: str) -> PreTrainedModel:
        """A model to count on, with the sizes of the weights that training starts from, if any."""
        if self.recipe.init is not None:
            return build_for(self.task, variant, self.tokenizers, self.recipe, seed=0)
        return skeleton(variant, self.task.model_task, **self.settings(variant))

    def count_parameters(self, variant: str) -> int:
        return self.skeleton(variant).num_parameters()

    def count_flops(self, variant: str) -> FlopsPerToken:
        """Count operations a token at the mean length of the examples, or at equal lengths where a variant wants so."""
        model = self.skeleton(variant)
        source, target = self.work.source_len, self.work.target_len
        try:
            return flops_per_token(model, source, target)
        except ZooError:
            longer = max(source, target or source)
            return flops_per_token(model, longer, longer)

    def check(self, variant: str) -> None:
        """Refuse a variant that cannot be trained on the examples."""
        model = build_for(self.task, variant, self.tokenizers, self.recipe, seed=0)
        collator = self.task.collator(self.tokenizers)
        check_data(model, variant, self.task, self.encoded, collator, self.arguments)

    def hash_of(self, variant: str, recipe: Mapping[str, Any], **others: Any) -> str:
        """Make a short name for everything that decides what a run comes to."""
        model = self.config(variant)
        trained = {name: value for name, value in recipe.items() if name not in ("model", "explicit", "tokenizer")}
        return content_hash(
            {
                "versions": {name: installed_version(name) for name in ("transformer-zoo", "torch", "transformers")},
                "zoo": digest_of_the_zoo(),
                "modules": digest_of_modules(origin.module for origin in foreign_origins(model).values()),
                "config": {name: value for name, value in model.to_dict().items() if name not in INCIDENTAL},
                "recipe": trained,
                **self.digests,
                **others,
            }
        )


def tokenizers_in(folder: Path, task: DataTask, splits: Splits, recipe: Recipe, *, begun: bool) -> Tokenizers:
    """Find the tokenizers that a comparison has begun with, or begin with some."""
    if begun and (folder / TOKENIZER).is_dir():
        return load_tokenizers(folder / TOKENIZER)
    tokenizers = tokenizers_for(task, splits.train, recipe)
    tokenizers.save(folder / TOKENIZER)
    return tokenizers


def modules_of(model_config: ZooConfig) -> tuple[str, ...]:
    """Find the user's own modules that a model needs, which another process must import by itself."""
    modules = []
    for named, origin in foreign_origins(model_config).items():
        if origin.plugin is not None:
            continue
        if origin.module == "__main__":
            raise ConfigError(
                f"{named} is registered in a script or notebook, which the processes of a comparison cannot import; "
                "move it to a module"
            )
        modules.append(origin.module)
    return tuple(dict.fromkeys(modules))


def foreign_origins(model_config: ZooConfig) -> dict[str, Origin]:
    named = model_config.named_parts()
    origins = {f"{registry.kind} {name!r}": registry.origin(name) for _, registry, name in named}
    return {called: origin for called, origin in origins.items() if not origin.built_in}
