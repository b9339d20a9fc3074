"""From a variant and data to a trained model and its scores."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import EarlyStoppingCallback, PreTrainedModel, PrinterCallback, ProgressCallback, TrainerCallback

from zoo.base.errors import ConfigError, ZooError
from zoo.base.folders import check_output, held_alone, scratch_folder
from zoo.building.completion import spell_out
from zoo.building.keywords import TrainingOptions
from zoo.data.tasks import DataSource, DataTask, Outputs, Splits, Tokenizers
from zoo.data.tasks.leaks import leaks_said, without_leaks
from zoo.data.tasks.libraries import loading_bars
from zoo.data.tasks.mixing import MixedBlocks
from zoo.data.tasks.tables import Column, DataWarning
from zoo.fast.switches import current, fast_paths

from .arguments import ZooTrainingArguments, keep_logs, training_arguments
from .averaging import keep_average
from .checkpoints import clear_checkpoints, going_on_from, remove_checkpoints, remove_except
from .inputs import build_for, encode, full_recipe, num_parameters, tokenizers_for
from .memory_check import check_room
from .predicting import check_generation, predict
from .preflight import check_data, check_examples
from .progress import LossProgress, overview
from .recipe import Recipe
from .record import RunRecord, TrainingReport, TrainingResult, peak_memory, record_run
from .saving import Revisions, check_push, folder_of, is_unscored, keep_report, marks_of, push_result, save_checkpoint
from .trainer import ZooTrainer

if TYPE_CHECKING:
    from typing_extensions import Unpack


@contextmanager
def determinism(*, wanted: bool) -> Iterator[None]:
    """Let no clock decide how a run computes, and leave the process as it was when it ends."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    flags = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    matmul = "never" if wanted and current().onednn_matmul == "auto" else current().onednn_matmul
    try:
        with fast_paths(onednn_matmul=matmul):
            yield
    finally:
        if wanted:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
            torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = flags


KEEPING_CHECKPOINTS: dict[str, Any] = {"save_strategy": "epoch", "save_total_limit": 2}
"""Training arguments of a run that can be resumed, unless it says otherwise."""


class ScoringError(ZooError, RuntimeError):
    """A model that was trained and saved, and could not be scored."""

    exit_code = 1


def train(
    model: str | PreTrainedModel,
    task: str | None = None,
    *,
    data: str | Path | Splits | None = None,
    heldout: str | Path | None = None,
    columns: Sequence[Column] | None = None,
    recipe: str | Path | Recipe | None = None,
    tokenizer: str | Path | Mapping[str, Any] | Tokenizers | None = None,
    init: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    generation: Mapping[str, Any] | None = None,
    output_dir: str | Path | None = None,
    force: bool = False,
    resume: bool = False,
    push: str | None = None,
    with_code: bool = False,
    seed: int = 0,
    scored: bool = True,
    callbacks: Sequence[TrainerCallback] = (),
    progress: bool = True,
    tell: Callable[[str], None] | None = None,
    **arguments: Unpack[TrainingOptions],
) -> TrainingResult:
    """Train a model with transformers' trainer, and score it on held-out examples.

    The whole run is checked before its first step. Under `accelerate launch` or `torchrun`, every process calls this
    with the same arguments.

    Args:
        model: A variant's name, possibly with settings, or a model that fits the tokenizer.
        task: A name in [`zoo.data.tasks.TASKS`][], possibly with options: "language-modeling:block_size=64"; by default
            the recipe's, or else translation.
        data: Examples: a file, a folder with a train and a held-out file, or loaded ones; by default what ships with
            the zoo.
        heldout: The file to evaluate on, by default what `data` says, or 5 % of it.
        columns: Names or numbers of the columns to read, by default those named like what they hold, else the first.
        recipe: What is not said here: a recipe's name or file, by default the one called like the task.
        tokenizer: A kind ("bpe", "word", "character"), a kind with options ("bpe:vocab_size=4000"), a
            folder with a tokenizer.json, or loaded ones.
        init: What training starts from instead of random weights: the name of weights ("vanilla.en-pt"), a folder or a
            repository, of the same variant. Its settings and, unless `tokenizer` says otherwise, its tokenizer are
            kept; a head or embeddings that do not fit the task are new.
        settings: Fields of [`zoo.models.ZooConfig`][] to build the variant with; they win over its preset and quirks,
            and must not contradict settings in its name.
        generation: What `generate` is called with when outputs are scored.
        output_dir: Where to save the model and its tokenizer; by default nothing is kept.
        force: Whether a saved model there may be replaced, and checkpoints of an earlier run removed.
        resume: Whether to keep checkpoints in the folder `output_dir`-checkpoints, one an epoch unless `save_strategy`
            says otherwise, and to go on from the last whole one that an earlier run has left there, if any. They are
            removed at the end.
        push: The repository on the Hugging Face Hub that gets the model at the end, as for [`zoo.push`][].
        with_code: Whether to push the code too, for use where the zoo is not installed.
        seed: Seed of weights, dropout and data.
        scored: Whether to score outputs at the end, and not the loss alone.
        callbacks: transformers' callbacks, besides those of the run itself.
        progress: Whether to show progress bars.
        tell: Receives an overview of the data before training: columns, three rows, counts of labels, and a histogram
            of lengths. By default it is printed to stderr together with progress bars.
        arguments: Fields of transformers' `Seq2SeqTrainingArguments`: `num_train_epochs`, `learning_rate`, ...; and
            `early_stopping_patience`, after how many evaluations without a better one the run ends. `optim` may be
            "muon". `decay` is what weight decay applies to, by default "matrices", else "matrices-and-embeddings",
            "all" or "transformers". Where the best checkpoint is kept, it is chosen by examples that are set aside from
            the training data, never by those that are reported.

    Returns:
        The trained model, what it wrote, and the numbers.

    Raises:
        ZooError: When a name is unknown, data cannot be used, or `output_dir` is in use, before anything is trained;
            or when the loss is no longer a number, or the disk is full.
    """
    if output_dir is not None:
        check_output(Path(output_dir), force=force or (resume and is_unscored(output_dir)))
    elif resume or push:
        raise ConfigError(f"{'resume' if resume else 'push'} is given without output_dir, where the model is kept")
    said: dict[str, Any] = {"arguments": TrainingOptions(**arguments), "settings": settings, "generation": generation}
    chosen = full_recipe(task, recipe, **said, tokenizer=tokenizer, init=init)
    if resume:
        chosen = replace(chosen, arguments={**KEEPING_CHECKPOINTS, **chosen.arguments})
    data_task = chosen.data_task()
    if isinstance(model, str):
        data_task.check_variant(model)
        chosen.check_name(model)
    checkpoints = f"{Path(output_dir).absolute()}-checkpoints" if output_dir is not None else os.curdir
    args = training_arguments(chosen.arguments, output_dir=checkpoints, seed=seed, progress=progress)
    saves = args.save_strategy != "no"
    with places_taken(output_dir, checkpoints, args, push, force=force, resume=resume):
        source = DataSource.of(None if isinstance(data, Splits) else data, heldout, columns, seed)
        with loading_bars(shown=progress):
            splits = without_leaks(data) if isinstance(data, Splits) else data_task.load_from(source)
        data_task = data_task.fitted(splits)
        if isinstance(tokenizer, Tokenizers):
            tokenizers = tokenizer
        else:
            tokenizers = tokenizers_for(data_task, splits.train, chosen, is_given=tokenizer is not None)
        splits = data_task.prepare(splits, tokenizers, progress=progress)
        if splits.duplicates:
            warnings.warn(leaks_said(splits), DataWarning, stacklevel=2)
        selection = None
        if args.load_best_model_at_end or args.early_stopping_patience is not None:  # by what is not reported
            kept_for_training, selection = data_task.set_aside(splits.train, seed=seed)
            splits = replace(splits, train=kept_for_training)
        run = record_run(model, chosen, tokenizers, splits, selection=selection, seed=args.seed)
        if isinstance(model, str) and chosen.init is not None:
            model = build_for(data_task, model, tokenizers, chosen, seed=args.seed)
        check_room(num_parameters(model, data_task, tokenizers, chosen), args, output_dir, saves=saves)
        encoded = encode(data_task, splits, tokenizers, seed=seed)
        if args.process_index == 0 and (tell is not None or progress):
            kept = chosen.kept_sizes(model) if isinstance(model, str) else {}
            (tell or to_stderr)(overview(data_task, splits, encoded, kept))
        if isinstance(model, str):
            model = build_for(data_task, model, tokenizers, chosen, seed=args.seed)
        idle = check_data(model, run.variant, data_task, encoded, data_task.collator(tokenizers), args)
        marks = marks_of(args, data_task, splits.train, encoded.train, tokenizers)
        check_further_outputs(output_dir, marks, args, force=force or resume)
        chosen_by = encoded.heldout if selection is None else data_task.encode(selection, tokenizers)
        check_examples(model, chosen_by, "training")
        if args.ddp_find_unused_parameters is None:
            args.ddp_find_unused_parameters = bool(idle)
        check_generation(model, data_task, tokenizers, chosen.generation)
        checkpoint = going_on_from(checkpoints, model, identity_of(run, args)) if resume else None
        if resume and args.process_index == 0:
            remove_except(checkpoints, checkpoint)
        with determinism(wanted=args.full_determinism):
            watched = Splits(encoded.train, chosen_by)
            trainer = make_trainer(run, model, args, data_task, tokenizers, watched, callbacks, progress=progress)
            if output_dir is not None:
                keep_logs(trainer, output_dir)
            if marks and output_dir is not None:
                save = partial(save_revision, trainer, tokenizers, output_dir, run)
                trainer.add_callback(Revisions(trainer, marks, save))
            trainer.train(resume_from_checkpoint=checkpoint)
            train_seconds, memory = trainer.totals.elapsed(), peak_memory(args.device)
            trainer.check_trained()
            trainer.eval_dataset = encoded.heldout
            if output_dir is not None:
                force = force or (resume and is_unscored(output_dir))
                save_trained(trainer, tokenizers, output_dir, run, force=force)
            began = time.perf_counter()
            with kept_in(output_dir):
                predictions = predict(
                    trainer, data_task, tokenizers, chosen.generation, outputs=None if scored else Outputs.NONE
                )
                scores = dict(data_task.score(predictions, splits.heldout)) if scored else {}
                place_of_average = None if output_dir is None else f"{Path(output_dir)}-average"
                average = keep_average(
                    trainer, data_task, tokenizers, splits, run, place_of_average, scored=scored, force=force
                )
            evaluation_seconds = time.perf_counter() - began
        report = report_of(
            trainer,
            run,
            args,
            task=data_task.name,
            train_seconds=train_seconds,
            heldout_loss=predictions.loss,
            scores=scores,
            evaluation_seconds=evaluation_seconds,
            peak_memory=memory,
            average=average,
        )
        if isinstance(trainer.train_dataset, MixedBlocks):
            blocks = report.steps * report.examples_per_update
            report = replace(report, mixture=trainer.train_dataset.result(blocks))
        pushed = None
        if output_dir is not None and trainer.is_world_process_zero():
            keep_report(output_dir, report.to_dict())
            reached = any(folder_of(output_dir, mark).is_dir() for mark in marks)
            pushed = push_result(output_dir, push, revisions=reached, with_code=with_code)
            if resume:
                remove_checkpoints(checkpoints)
        trainer.accelerator.wait_for_everyone()
    return TrainingResult(trainer.trained_model(), tokenizers, list(predictions.outputs), report, run, pushed)


spell_out(train, TrainingOptions)


@contextmanager
def places_taken(
    output_dir: str | Path | None,
    checkpoints: str,
    args: ZooTrainingArguments,
    push: str | None,
    *,
    force: bool,
    resume: bool,
) -> Iterator[None]:
    """Hold the folder of a run alone, and give the trainer one for checkpoints: a scratch folder if none are kept."""
    saves = args.save_strategy != "no"
    kept = nullcontext(checkpoints) if saves and output_dir is not None else scratch_folder()
    keeps_nothing = output_dir is None or args.process_index != 0
    alone = nullcontext() if keeps_nothing else held_alone(Path(output_dir or ""), "training into")
    with alone, kept as place:
        args.output_dir = str(place)
        if args.process_index == 0:
            if output_dir is not None:
                check_output(Path(output_dir), force=force or (resume and is_unscored(output_dir)))
            check_push(push)
            if saves and not resume:
                clear_checkpoints(args.output_dir, force=force)
        yield


def check_further_outputs(
    output_dir: str | Path | None, marks: Mapping[str, float], args: ZooTrainingArguments, *, force: bool
) -> None:
    """Refuse folders of models at marks, and of averages, that hold something else."""
    if marks and output_dir is None:
        raise ConfigError("checkpoint_at is given without output_dir, beside which the models are kept")
    if args.process_index == 0 and output_dir is not None:
        places = [folder_of(output_dir, mark) for mark in marks]
        places += [Path(f"{Path(output_dir)}-average")] if args.average is not None else []
        for further in places:
            check_output(further, force=force)


def report_of(
    trainer: ZooTrainer, run: RunRecord, args: ZooTrainingArguments, *, task: str, **measured: Any
) -> TrainingReport:
    """Collect the numbers of a run: what the trainer has counted, and what was measured besides."""
    history = [entry for entry in trainer.state.log_history if "loss" in entry]
    together = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    return TrainingReport(
        variant=run.variant,
        task=task,
        seed=args.seed,
        device=args.device.type,
        num_devices=args.world_size,
        num_parameters=trainer.trained_model().num_parameters(),
        train_examples=len(trainer.train_dataset) if run.data.train.examples else trainer.state.global_step * together,
        heldout_examples=len(trainer.eval_dataset),
        steps=trainer.state.global_step,
        best_step=trainer.state.best_global_step if args.load_best_model_at_end else None,
        epochs=float(trainer.state.epoch or 0),
        train_tokens=trainer.total_tokens(),
        train_loss=history[-1]["loss"] if history else trainer.mean_loss(),
        history=history,
        evaluations=[entry for entry in trainer.state.log_history if "eval_loss" in entry],
        examples_per_update=together,
        **measured,
    )


def to_stderr(text: str) -> None:
    """Print to stderr."""
    print(text, file=sys.stderr)


def save_trained(
    trainer: ZooTrainer, tokenizers: Tokenizers, output_dir: str | Path, run: RunRecord, *, force: bool
) -> None:
    """Save a trained model, before anything that may fail is done with it."""
    state_dict = trainer.accelerator.get_state_dict(trainer.model) if trainer.is_fsdp_enabled else None
    if trainer.is_world_process_zero():
        save_checkpoint(trainer.trained_model(), tokenizers, output_dir, force=force, state_dict=state_dict, run=run)


def save_revision(
    trainer: ZooTrainer, tokenizers: Tokenizers, output_dir: str | Path, run: RunRecord, mark: str
) -> None:
    """Save the model as it is at a mark, with the numbers of updates and tokens."""
    place, tokens = folder_of(output_dir, mark), trainer.total_tokens()
    save_trained(trainer, tokenizers, place, run, force=True)
    if trainer.is_world_process_zero():
        keep_report(place, {"steps": trainer.state.global_step, "train_tokens": tokens}, "checkpoint")


@contextmanager
def kept_in(output_dir: str | Path | None) -> Iterator[None]:
    """Describe where a trained model is, when it cannot be scored."""
    try:
        yield
    except Exception as error:
        if output_dir is None:
            raise
        reason = str(error) if isinstance(error, ZooError) else f"{type(error).__name__}: {error}"
        raise ScoringError(
            f"{output_dir} holds the trained model, but it could not be scored: {reason}; to try that again: "
            f"zoo evaluate {output_dir}"
        ) from error


def make_trainer(
    run: RunRecord,
    model: PreTrainedModel,
    args: ZooTrainingArguments,
    task: DataTask,
    tokenizers: Tokenizers,
    encoded: Splits,
    callbacks: Sequence[TrainerCallback],
    *,
    progress: bool,
) -> ZooTrainer:
    """The trainer of a run on encoded examples, with callbacks in addition to those of `args`."""
    callbacks = list(callbacks)
    if args.early_stopping_patience is not None:
        callbacks.append(EarlyStoppingCallback(args.early_stopping_patience, args.early_stopping_threshold))
    trainer = ZooTrainer(
        run=identity_of(run, args),
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
        trainer.add_callback(LossProgress(run.variant))
    return trainer


def identity_of(run: RunRecord, args: ZooTrainingArguments) -> dict[str, Any]:
    """Tell a run from others, whatever it is spread over."""
    return run.identity(examples_a_batch=args.train_batch_size * args.world_size)
