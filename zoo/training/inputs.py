"""What a run is made of: tokenizers, examples as ids, and a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PreTrainedModel

from zoo.building import build, skeleton
from zoo.tasks import DataTask, Splits, Tokenizers, load_tokenizers

from .recipe import Recipe, recipe_for


def full_recipe(
    task: str | None,
    recipe: str | Path | Recipe | None,
    *,
    arguments: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    generation: Mapping[str, Any] | None = None,
    tokenizer: str | Path | Mapping[str, Any] | Tokenizers | None = None,
) -> Recipe:
    """Put everything that was said of a run into one recipe.

    Args:
        task: As for [`zoo.training.train`][].
        recipe: As for [`zoo.training.train`][].
        arguments: As for [`zoo.training.train`][].
        settings: As for [`zoo.training.train`][].
        generation: As for [`zoo.training.train`][].
        tokenizer: As for [`zoo.training.train`][].

    Returns:
        The recipe.
    """
    said = tokenizer.made_by if isinstance(tokenizer, Tokenizers) else tokenizer
    found = recipe_for(task, recipe)
    return found.changed(arguments=arguments, model=settings, generation=generation, tokenizer=said)


def tokenizers_for(task: DataTask, examples: Dataset, recipe: Recipe) -> Tokenizers:
    """Load or train the tokenizers of a run.

    Args:
        task: The task.
        examples: What to train them on.
        recipe: Says which.

    Returns:
        The tokenizers.
    """
    if "folder" in recipe.tokenizer:
        return load_tokenizers(recipe.tokenizer["folder"])
    made = task.train_tokenizers(examples, **recipe.tokenizer)
    return replace(made, made_by=recipe.tokenizer or made.made_by)


def encode(task: DataTask, splits: Splits, tokenizers: Tokenizers, *, seed: int) -> Splits:
    """Turn the examples of a run into ids.

    Args:
        task: The task.
        splits: The examples.
        tokenizers: The tokenizers.
        seed: Of what is drawn.

    Returns:
        The same examples, as [`zoo.tasks.DataTask.encode`][] returns them.
    """
    return Splits(
        task.encode(splits.train, tokenizers, training=True, seed=seed), task.encode(splits.heldout, tokenizers)
    )


def build_for(task: DataTask, name: str, tokenizers: Tokenizers, recipe: Recipe, *, seed: int) -> PreTrainedModel:
    """Build a variant as a recipe wants it.

    Args:
        task: The task, which decides the model's head.
        name: The variant's name; what it says itself takes precedence over the recipe.
        tokenizers: Whose vocabularies the model gets.
        recipe: The recipe.
        seed: The seed of the weights.

    Returns:
        The model, with random weights.
    """
    settings = {**recipe.model_settings(name), **task.model_settings(tokenizers)}
    return build(name, task.model_task, seed=seed, **settings)


def num_parameters(model: str | PreTrainedModel, task: DataTask, tokenizers: Tokenizers, recipe: Recipe) -> int:
    """Count parameters before there are any.

    Args:
        model: A variant's name, or a model.
        task: As for [`build_for`][].
        tokenizers: As for [`build_for`][].
        recipe: As for [`build_for`][].

    Returns:
        Their number, each shared one counted once.
    """
    if not isinstance(model, str):
        return model.num_parameters()
    settings = {**recipe.model_settings(model), **task.model_settings(tokenizers)}
    return skeleton(model, task.model_task, **settings).num_parameters()
