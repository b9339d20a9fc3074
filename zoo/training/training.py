"""From a variant and data to a trained model and its scores."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import EarlyStoppingCallback, PreTrainedModel, PrinterCallback, ProgressCallback, TrainerCallback

from zoo.building import build, skeleton
from zoo.errors import ConfigError
from zoo.folders import check_output
from zoo.tasks import DataTask, Outputs, Splits, Tokenizers, load_tokenizers
from zoo.tasks.tables import Column

from .arguments import ZooTrainingArguments, training_arguments
from .determinism import determinism
from .predicting import check_generation, predict
from .preflight import check_data
from .progress import LossProgress
from .publishing import check_push, push_result
from .recipe import Recipe, recipe_for
from .report import TrainingReport, TrainingResult, peak_memory
from .room import check_room
from .saving import KEEPING_CHECKPOINTS, check_same_model, clear_checkpoints, last_checkpoint, save_checkpoint
from .tracking import keep_logs
from .trainer import ZooTrainer


def train(
    model: str | PreTrainedModel,
    task: str | None = None,
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
    push: str | None = None,
    seed: int = 0,
    scored: bool = True,
    callbacks: Sequence[TrainerCallback] = (),
    progress: bool = True,
    **arguments: Any,
) -> TrainingResult:
    """Train a model with transformers' trainer, and score it on held-out examples.

    The whole run is checked before its first step. Under `accelerate launch` or `torchrun`, every process calls this
    with the same arguments.

    Args:
        model: A variant's name, possibly with settings, or a model that fits the tokenizer.
        task: A name in [`zoo.tasks.TASKS`][], possibly with options: "language-modeling:block_size=64"; by default the
            recipe's, or else translation.
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
        force: Whether a saved model there may be replaced, and checkpoints of an earlier run removed.
        resume: Whether to keep checkpoints in the folder `output_dir`-checkpoints, one an epoch unless `save_strategy`
            says otherwise, and to go on from the last whole one that an earlier run has left there, if any.
        push: The repository on the Hugging Face Hub that gets the model at the end, as for [`zoo.push`][].
        seed: Seed of weights, dropout and data.
        scored: Whether to score outputs at the end, and not the loss alone.
        callbacks: transformers' callbacks, besides those of the run itself.
        progress: Whether to show progress bars.
        arguments: Fields of transformers' `Seq2SeqTrainingArguments`: `num_train_epochs`, `learning_rate`, ...; and
            `early_stopping_patience`, after how many evaluations without a better one the run ends. `optim` may be
            "muon".

    Returns:
        The trained model, what it wrote, and the numbers.

    Raises:
        ZooError: When a name is unknown, data cannot be used, or `output_dir` is in use, before anything is trained;
            or when the loss is no longer a number, or the disk is full.
    """
    if output_dir is not None:
        check_output(Path(output_dir), force=force)
    elif resume or push:
        raise ConfigError(f"{'resume' if resume else 'push'} is given without output_dir, where the model is kept")
    chosen = recipe_for(task, recipe).changed(arguments=arguments, model=settings, generation=generation)
    if resume:
        chosen = chosen.changed(arguments={**KEEPING_CHECKPOINTS, **chosen.arguments})
    data_task = chosen.data_task()
    if isinstance(model, str):
        data_task.check_variant(model)
    with tempfile.TemporaryDirectory() as scratch:
        checkpoints = f"{Path(output_dir).absolute()}-checkpoints" if output_dir is not None else scratch
        args = training_arguments(chosen.arguments, output_dir=scratch, seed=seed, progress=progress)
        saves = args.save_strategy != "no"
        if saves:
            args.output_dir = checkpoints
        if args.process_index == 0:
            check_push(push)
            if saves and not resume:
                clear_checkpoints(checkpoints, force=force)
        splits = data if isinstance(data, Splits) else data_task.load(data, heldout=heldout, columns=columns, seed=seed)
        data_task = data_task.fitted(splits)
        tokenizers = tokenizers_for(data_task, splits.train, tokenizer, chosen)
        name = model if isinstance(model, str) else type(model).__name__
        check_room(num_parameters(model, data_task, tokenizers, chosen), args, output_dir, saves=saves)
        encoded = encode(data_task, splits, tokenizers, seed=seed)
        if isinstance(model, str):
            model = build_for(data_task, model, tokenizers, chosen, seed=args.seed)
        idle = check_data(model, name, data_task, encoded, data_task.collator(tokenizers), args)
        if args.ddp_find_unused_parameters is None:
            args.ddp_find_unused_parameters = bool(idle)
        check_generation(model, data_task, tokenizers, chosen.generation)
        checkpoint = last_checkpoint(checkpoints) if resume else None
        if checkpoint is not None:
            check_same_model(checkpoint, model)
        with determinism(wanted=args.full_determinism):
            trainer = make_trainer(
                name, model, args, data_task, tokenizers, encoded, callbacks=callbacks, progress=progress
            )
            if output_dir is not None:
                keep_logs(trainer, output_dir)
            outcome = trainer.train(resume_from_checkpoint=checkpoint)
            train_seconds, memory = trainer.totals.elapsed(), peak_memory(args.device)
            trainer.check_trained()
            began = time.perf_counter()
            predictions = predict(
                trainer, data_task, tokenizers, chosen.generation, outputs=None if scored else Outputs.NONE
            )
            evaluation_seconds = time.perf_counter() - began
    history = [entry for entry in trainer.state.log_history if "loss" in entry]
    trained = trainer.trained_model()
    report = TrainingReport(
        variant=name,
        task=data_task.name,
        seed=args.seed,
        device=args.device.type,
        num_devices=args.world_size,
        num_parameters=trained.num_parameters(),
        train_examples=len(trainer.train_dataset),
        heldout_examples=len(trainer.eval_dataset),
        steps=trainer.state.global_step,
        best_step=trainer.state.best_global_step if args.load_best_model_at_end else None,
        epochs=float(trainer.state.epoch or 0),
        train_tokens=trainer.total_tokens(),
        train_seconds=train_seconds,
        train_loss=history[-1]["loss"] if history else outcome.training_loss,
        heldout_loss=predictions.loss,
        scores=dict(data_task.score(predictions, splits.heldout)) if scored else {},
        evaluation_seconds=evaluation_seconds,
        peak_memory=memory,
        history=history,
        evaluations=[entry for entry in trainer.state.log_history if "eval_loss" in entry],
    )
    pushed = None
    if output_dir is not None:
        state_dict = trainer.accelerator.get_state_dict(trainer.model) if trainer.is_fsdp_enabled else None
        if trainer.is_world_process_zero():
            numbers, how = report.to_dict(), asdict(chosen)
            save_checkpoint(
                trained, tokenizers, output_dir, force=force, state_dict=state_dict, report=numbers, recipe=how
            )
            pushed = push_result(output_dir, push, report)
    trainer.accelerator.wait_for_everyone()
    return TrainingResult(trained, tokenizers, list(predictions.outputs), report, pushed)


def make_trainer(
    name: str,
    model: PreTrainedModel,
    args: ZooTrainingArguments,
    task: DataTask,
    tokenizers: Tokenizers,
    encoded: Splits,
    *,
    callbacks: Sequence[TrainerCallback] = (),
    progress: bool,
) -> ZooTrainer:
    """Make the trainer of a run.

    Args:
        name: What is trained.
        model: The model.
        args: How.
        task: The task.
        tokenizers: The tokenizers.
        encoded: Examples as ids.
        callbacks: transformers' callbacks, besides those that `args` ask for.
        progress: Whether to show a progress bar.

    Returns:
        The trainer.
    """
    callbacks = list(callbacks)
    if args.early_stopping_patience is not None:
        callbacks.append(EarlyStoppingCallback(args.early_stopping_patience, args.early_stopping_threshold))
    trainer = ZooTrainer(
        model=model,
        args=args,
        data_collator=task.collator(tokenizers),
        train_dataset=encoded.train,
        eval_dataset=encoded.heldout,
        processing_class=tokenizers.target,
        callbacks=callbacks,
    )
    trainer.remove_callback(PrinterCallback)
    if progress:
        trainer.remove_callback(ProgressCallback)
        trainer.add_callback(LossProgress(name))
    return trainer


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
