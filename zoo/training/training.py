"""From a variant and data to a trained model and its scores."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerFast, PrinterCallback, ProgressCallback

from zoo.building import build
from zoo.errors import ConfigError
from zoo.folders import check_output
from zoo.tasks import TASKS, DataTask, Splits, Tokenizers, load_tokenizers
from zoo.tasks.reading import Column

from .arguments import training_arguments
from .progress import LossProgress, StopWithoutLoss
from .recipe import Recipe, load_recipe
from .report import TrainingReport, TrainingResult, peak_memory
from .saving import KEEPING_CHECKPOINTS, last_checkpoint, save_checkpoint
from .trainer import ZooTrainer


def train(
    model: str | PreTrainedModel,
    task: str = "translation",
    *,
    data: str | Path | Splits | None = None,
    heldout: str | Path | None = None,
    columns: Sequence[Column] | None = None,
    recipe: str | Path | Recipe | None = None,
    tokenizer: str | Path | Mapping[str, Any] | Tokenizers | None = None,
    settings: Mapping[str, Any] | None = None,
    generation: Mapping[str, Any] | None = None,
    output_dir: str | Path | None = None,
    force: bool = False,
    resume: bool = False,
    seed: int = 0,
    progress: bool = True,
    **arguments: Any,
) -> TrainingResult:
    """Train a model with transformers' trainer, and score it on held-out examples.

    Args:
        model: A variant's name, possibly with settings, or a model that fits the tokenizer.
        task: A name in [`zoo.tasks.TASKS`][].
        data: Examples: a file, a folder with a train and a held-out file, or loaded ones; by default what ships with
            the zoo.
        heldout: The file to evaluate on, by default what `data` says, or 5 % of it.
        columns: Names or numbers of the columns to read, by default the first ones.
        recipe: What is not said here: a recipe's name or file, by default the one called like the task.
        tokenizer: A kind ("bpe", "word", "character"), a kind with options (`{"kind": "bpe", "vocab_size": 4000}`), a
            folder with a tokenizer.json, or loaded ones.
        settings: Fields of [`zoo.models.ZooConfig`][] to build the variant with.
        generation: What `generate` is called with when outputs are scored.
        output_dir: Where to save the model and its tokenizer; by default nothing is kept.
        force: Whether a saved model there may be replaced.
        resume: Whether to keep checkpoints in the folder `output_dir`-checkpoints, one an epoch unless `save_strategy`
            says otherwise, and to go on from the last whole one that an earlier run has left there, if any.
        seed: Seed of weights, dropout and data.
        progress: Whether to show progress bars.
        arguments: Fields of transformers' `Seq2SeqTrainingArguments`: `num_train_epochs`, `learning_rate`, ...

    Returns:
        The trained model, what it wrote, and the numbers.

    Raises:
        ZooError: When a name is unknown, data cannot be used, or `output_dir` is in use, before anything is trained;
            or when the loss is no longer a number.
    """
    if output_dir is not None:
        check_output(Path(output_dir), force=force)
    elif resume:
        raise ConfigError("resume is given without output_dir, beside which the checkpoints are")
    data_task = TASKS.get(task)
    chosen = recipe if isinstance(recipe, Recipe) else load_recipe(recipe if recipe is not None else task)
    chosen = chosen.changed(arguments=arguments, model=settings, generation=generation)
    if resume:
        chosen = chosen.changed(arguments={**KEEPING_CHECKPOINTS, **chosen.arguments})
    splits = data if isinstance(data, Splits) else data_task.load(data, heldout=heldout, columns=columns, seed=seed)
    tokenizers = tokenizers_for(data_task, splits.train, tokenizer, chosen)
    with tempfile.TemporaryDirectory() as scratch:
        saves = output_dir is not None and chosen.arguments.get("save_strategy", "no") != "no"
        checkpoints = f"{output_dir}-checkpoints" if saves else scratch
        checked = training_arguments(chosen.arguments, output_dir=checkpoints, seed=seed, progress=progress)
        name = model if isinstance(model, str) else type(model).__name__
        if isinstance(model, str):
            model = build_for(data_task, model, tokenizers, chosen, seed=checked.seed)
        collator = data_task.collator(tokenizers)
        trainer = ZooTrainer(
            model=model,
            args=checked,
            data_collator=collator,
            train_dataset=data_task.encode(splits.train, tokenizers),
            eval_dataset=data_task.encode(splits.heldout, tokenizers),
            processing_class=tokenizers.target,
            callbacks=[StopWithoutLoss()],
        )
        trainer.remove_callback(PrinterCallback)
        if progress:
            trainer.remove_callback(ProgressCallback)
            trainer.add_callback(LossProgress(name))
        outcome = trainer.train(resume_from_checkpoint=last_checkpoint(checkpoints) if resume else None)
        memory = peak_memory(checked.device)
        began = time.perf_counter()
        outputs, heldout_loss = write_outputs(trainer, tokenizers.target, chosen.generation)
        evaluation_seconds = time.perf_counter() - began
    history = [entry for entry in trainer.state.log_history if "loss" in entry]
    trained = trainer.trained_model()
    report = TrainingReport(
        variant=name,
        task=task,
        seed=checked.seed,
        device=checked.device.type,
        num_parameters=trained.num_parameters(),
        train_examples=len(splits.train),
        heldout_examples=len(splits.heldout),
        steps=trainer.state.global_step,
        epochs=float(trainer.state.epoch or 0),
        train_tokens=int(trainer.accelerator.reduce(trainer.train_tokens).item()),
        train_seconds=outcome.metrics["train_runtime"],
        train_loss=history[-1]["loss"] if history else outcome.training_loss,
        heldout_loss=heldout_loss,
        scores=dict(data_task.score(outputs, splits.heldout)),
        evaluation_seconds=evaluation_seconds,
        peak_memory=memory,
        history=history,
    )
    if output_dir is not None and trainer.is_world_process_zero():
        save_checkpoint(trained, tokenizers, output_dir, force=force)
    return TrainingResult(trained, tokenizers, outputs, report)


def tokenizers_for(
    task: DataTask,
    examples: Dataset,
    tokenizer: str | Path | Mapping[str, Any] | Tokenizers | None,
    recipe: Recipe,
) -> Tokenizers:
    """Load or train the tokenizers of a run.

    Args:
        task: The task.
        examples: What to train them on.
        tokenizer: As for [`train`][].
        recipe: What else is known about them.

    Returns:
        The tokenizers.
    """
    if isinstance(tokenizer, Tokenizers):
        return tokenizer
    if isinstance(tokenizer, Path) or (isinstance(tokenizer, str) and Path(tokenizer).is_dir()):
        return load_tokenizers(tokenizer)
    if isinstance(tokenizer, str):
        tokenizer = {"kind": tokenizer}
    return task.train_tokenizers(examples, **recipe.changed(tokenizer=tokenizer).tokenizer)


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


def write_outputs(
    trainer: ZooTrainer, tokenizer: PreTrainedTokenizerFast, generation: Mapping[str, Any]
) -> tuple[list[str], float]:
    """Let a model write, in batches of similar lengths.

    Args:
        trainer: The trainer, whose evaluation data is used.
        tokenizer: What turns ids into text.
        generation: What `generate` is called with.

    Returns:
        A text an example, in the data's order, and the loss per token.
    """
    dataset = trainer.eval_dataset
    lengths = dataset["length"]
    order = sorted(range(len(dataset)), key=lambda i: lengths[i])
    generates, trainer.args.predict_with_generate = trainer.args.predict_with_generate, True
    try:
        predicted = trainer.predict(dataset.select(order), metric_key_prefix="heldout", **generation)
    finally:
        trainer.args.predict_with_generate = generates
    ids = np.where(predicted.predictions < 0, tokenizer.pad_token_id, predicted.predictions)
    texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
    outputs = [""] * len(order)
    for place, text in zip(order, texts, strict=True):
        outputs[place] = text.strip()
    return outputs, float(predicted.metrics["heldout_loss"])
