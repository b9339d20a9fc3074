"""Inputs that all runs of a comparison share: data, tokenizer and workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from zoo.analysis.environment import version_of
from zoo.analysis.measuring import FlopsPerToken, flops_per_token
from zoo.base.errors import ConfigError, ZooError
from zoo.building.builder import config, skeleton
from zoo.data.tasks import DataTask, Splits, Tokenizers, load_tokenizers
from zoo.models import ZooConfig
from zoo.models.parts import named_parts
from zoo.registry.plugins import Origin
from zoo.training import Recipe
from zoo.training.arguments import ZooTrainingArguments, training_arguments
from zoo.training.inputs import build_for, encode, tokenizers_for
from zoo.training.preflight import check_data
from zoo.training.record import digest_of_examples

from ..digests import content_hash, digest_of_files
from ..files import TOKENIZER
from ..sources import digest_of_modules, digest_of_the_zoo
from .workload import Workload, workload

INCIDENTAL = ("transformers_version", "_name_or_path")
"""Fields of a configuration that decide nothing."""


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
        """The examples as ids."""
        return encode(self.task, self.splits, self.tokenizers, seed=0)

    @cached_property
    def arguments(self) -> ZooTrainingArguments:
        """The recipe's training arguments."""
        return training_arguments(self.recipe.arguments, output_dir=self.folder, seed=0)

    @cached_property
    def work(self) -> Workload:
        """The workload of an update."""
        writes = self.task.model_task == "seq2seq-lm"
        return workload(self.encoded.train, self.arguments, writes=writes)

    @cached_property
    def tokenizer_digest(self) -> str:
        """A short name for the tokenizer's files."""
        return digest_of_files(self.folder / TOKENIZER)

    @cached_property
    def data_digest(self) -> list[str]:
        """Hashes of the examples."""
        return [digest_of_examples(part) for part in self.splits]

    def settings(self, variant: str) -> dict[str, Any]:
        """Settings of a variant from the recipe and the tokenizer."""
        return {**self.recipe.model_settings(variant), **self.task.model_settings(self.tokenizers)}

    def config(self, variant: str) -> ZooConfig:
        """Put a variant's configuration together."""
        return config(variant, self.task.model_task, **self.settings(variant))

    def count_parameters(self, variant: str) -> int:
        """Count a variant's parameters, each shared one once."""
        return skeleton(variant, self.task.model_task, **self.settings(variant)).num_parameters()

    def count_flops(self, variant: str) -> FlopsPerToken:
        """Count operations a token at the mean length of the examples, or at equal lengths where a variant wants so."""
        model = skeleton(variant, self.task.model_task, **self.settings(variant))
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
        made_of = self.config(variant)
        made = {name: value for name, value in made_of.to_dict().items() if name not in INCIDENTAL}
        trained = {name: value for name, value in recipe.items() if name not in ("model", "explicit", "tokenizer")}
        return content_hash(
            {
                "versions": {name: version_of(name) for name in ("transformer-zoo", "torch", "transformers")},
                "zoo": digest_of_the_zoo(),
                "modules": digest_of_modules(origin.module for origin in foreign_origins(made_of).values()),
                "config": made,
                "recipe": trained,
                "data": self.data_digest,
                "tokenizer": self.tokenizer_digest,
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
    """Find what of a model comes from elsewhere."""
    origins = {}
    for _, registry, name in named_parts(model_config):
        origins[f"{registry.kind} {name!r}"] = registry.origin(name)
    return {called: origin for called, origin in origins.items() if not origin.built_in}
