"""Inputs of a run: tokenizers, examples as ids, and a model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedModel

from zoo.base.errors import CheckpointError, ConfigError, ZooWarning
from zoo.building.builder import build, seeded, skeleton
from zoo.building.dispatch import load
from zoo.building.weights import locate
from zoo.data.tasks import DataTask, Splits, Tokenizers, full_path, load_tokenizers
from zoo.data.tasks.mapped import in_parts, is_mapped
from zoo.data.tasks.prepared import PreparedTexts
from zoo.data.tasks.text_task import RawTextTask
from zoo.registry import VARIANTS, parse_name

from .recipe import Recipe, recipe_for


def full_recipe(
    task: str | None,
    recipe: str | Path | Recipe | None,
    variant: str | None = None,
    *,
    arguments: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    generation: Mapping[str, Any] | None = None,
    tokenizer: str | Path | Mapping[str, Any] | Tokenizers | None = None,
    init: str | Path | None = None,
) -> Recipe:
    chosen = tokenizer.made_by if isinstance(tokenizer, Tokenizers) else tokenizer
    found = recipe_for(task, recipe, variant)
    start = full_path(init) if init is not None else found.init
    if start is not None:
        chosen = chosen if chosen is not None else {"folder": str(locate(start))}
        found = replace(found, init=start, model={field: found.model[field] for field in found.explicit})
    return found.changed(arguments=arguments, model=settings, generation=generation, tokenizer=chosen)


def tokenizers_for(task: DataTask, examples: Dataset, recipe: Recipe, *, is_given: bool = False) -> Tokenizers:
    """Load or train the tokenizers of a run; prepared texts have their own."""
    if isinstance(examples, PreparedTexts):
        if "folder" not in recipe.tokenizer and (is_given or recipe.tokenizer != recipe_for(task.name).tokenizer):
            raise ConfigError(
                f"{examples.folder} is prepared with its own tokenizer, and {dict(recipe.tokenizer)} was given: "
                "leave it out, or prepare the data again (zoo data prepare --tokenizer)"
            )
        return load_tokenizers(recipe.tokenizer.get("folder", examples.folder))
    if "folder" in recipe.tokenizer:
        return load_tokenizers(recipe.tokenizer["folder"])
    made = task.train_tokenizers(examples, **recipe.tokenizer)
    return replace(made, made_by=recipe.tokenizer or made.made_by)


def check_beginning(task: DataTask, tokenizers: Tokenizers) -> None:
    """Warn if a model would never read the token that begins its texts: rows of documents have ends alone."""
    tokenizer = tokenizers.source
    begins = task.model_task == "causal-lm" or getattr(task, "predicts_earlier", False)
    if isinstance(task, RawTextTask) and begins and tokenizer.bos_token_id not in (None, tokenizer.eos_token_id):
        warnings.warn(
            f"documents are trained on with {tokenizer.eos_token} between them and without {tokenizer.bos_token}, by "
            "which suites score sentences, and texts may begin: make bos_token the eos_token in tokenizer_config.json",
            ZooWarning,
            stacklevel=2,
        )


def encode(task: DataTask, splits: Splits, tokenizers: Tokenizers, *, seed: int) -> Splits:
    """Turn the examples of a run into ids, those of large files once."""
    if is_mapped(splits.train):
        train: Any = in_parts(task.encode, splits.train, tokenizers, decides=repr(task), training=True, seed=seed)
    else:
        train = task.encode(splits.train, tokenizers, training=True, seed=seed)
    return Splits(train, task.encode(splits.heldout, tokenizers))


def model_settings(task: DataTask, name: str, tokenizers: Tokenizers, recipe: Recipe) -> dict[str, Any]:
    """Settings of a variant from a recipe, the data and its tokenizers; a contradiction is an error."""
    chosen, follow = recipe.model_settings(name), task.model_settings(tokenizers)
    for setting, value in {**chosen, **parse_name(name).overrides}.items():
        if follow.get(setting, value) != value:
            other = (
                f", or train another tokenizer (--tokenizer bpe:vocab_size={value})" if setting == "vocab_size" else ""
            )
            raise ConfigError(
                f"{setting}={value} was given for {name!r}, and is {follow[setting]} with this data and tokenizer: "
                f"leave it out{other}"
            )
    return {**chosen, **follow}


def build_for(task: DataTask, name: str, tokenizers: Tokenizers, recipe: Recipe, *, seed: int) -> PreTrainedModel:
    """Build a variant as a recipe wants it, with random weights or those that it starts from."""
    settings = model_settings(task, name, tokenizers, recipe)
    if recipe.init is None:
        return build(name, task.model_task, seed=seed, **settings)
    settings.pop("sizes", None)  # those of the weights
    spec = parse_name(name)
    variant = VARIANTS.get(spec.name)
    with seeded(seed):  # of a new head
        model = load(recipe.init, task.model_task, dtype=torch.float32, **spec.overrides, **settings)
    wanted = (variant.name, list(variant.check_quirks(spec.quirks, faithful=spec.faithful)))
    if (found := (model.config.variant, list(model.config.quirks))) != wanted:
        there, here = ("+".join((which, *quirks)) for which, quirks in (found, wanted))
        raise ConfigError(f"{recipe.init} holds weights of {there!r}, and training {here!r} cannot start from them")
    check_same_tokens(recipe.init, tokenizers)
    return model


def check_same_tokens(init: str, tokenizers: Tokenizers) -> None:
    """Warn if the embeddings of weights are of other tokens: a vocabulary of the same size does not show it."""
    if tokenizers.made_by.get("folder") == str(locate(init).absolute()):
        return
    with suppress(CheckpointError, ConfigError):
        trained = load_tokenizers(locate(init))
        for one, other in ((trained.source, tokenizers.source), (trained.target, tokenizers.target)):
            there, here = one.get_vocab(), other.get_vocab()
            moved = sum(here.get(token) != number for token, number in there.items())
            if moved and len(there) == len(here):
                warnings.warn(
                    f"{moved:,} of {len(there):,} tokens of {init} have other ids in the given tokenizer, and training "
                    "starts from embeddings of other tokens: leave the tokenizer out, or give one of another size, "
                    "with which embeddings are new",
                    ZooWarning,
                    stacklevel=2,
                )
                return


def num_parameters(model: str | PreTrainedModel, task: DataTask, tokenizers: Tokenizers, recipe: Recipe) -> int:
    """Count parameters before they are allocated."""
    if not isinstance(model, str):
        return model.num_parameters()
    return skeleton(model, task.model_task, **model_settings(task, model, tokenizers, recipe)).num_parameters()
