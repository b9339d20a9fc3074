"""From a variant and data to a trained model and its scores."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import EarlyStoppingCallback, PreTrainedModel, TrainerCallback

from zoo.base.errors import ZooError, ZooWarning
from zoo.building.completion import spell_out
from zoo.building.keywords import TrainingOptions
from zoo.data.tasks import DataTask, Outputs, Splits, Tokenizers
from zoo.data.tasks.labels import LabelsTask
from zoo.data.tasks.libraries import loading_bars
from zoo.data.tasks.mixing import MixedBlocks
from zoo.data.tasks.sources import given_examples, leaks_message, without_leaks
from zoo.data.tasks.streaming import is_streamed
from zoo.data.tasks.tables import Column, DataWarning

from .arguments import ZooTrainingArguments, keep_logs
from .checkpoints import going_on_from, remove_checkpoints, remove_except
from .inputs import build_for, check_beginning, encode, num_parameters, tokenizers_for
from .predicting import check_generation, predict, score
from .preflight import check_data, check_disk, check_examples, check_memory, memory_of
from .progress import overview, show_progress
from .recipe import Recipe
from .record import RunRecord, TrainingReport, TrainingResult, peak_memory, record_run
from .request import TrainingRequest, check_further_outputs, places_taken
from .saving import Revisions, folder_of, keep_report, marks_of, save_checkpoint
from .trainer import ZooTrainer, without_mixed_precision

if TYPE_CHECKING:
    from typing import Unpack

    from zoo.hub import PushReport


@contextmanager
def determinism(*, wanted: bool) -> Iterator[None]:
    """Leave the process as it was when a run that asked for determinism ends."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    flags = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    try:
        yield
    finally:
        if wanted:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
            torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = flags


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
    seed: int | None = None,
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
            the recipe's, or else the one for the variant: translation for an encoder-decoder.
        data: Examples: a file, a folder with a train and a held-out file, or loaded ones; by default what ships with
            the zoo.
        heldout: The file to evaluate on, by default that of `data`, or 5 % of it.
        columns: Names or numbers of the columns to read, by default those named like what they hold, else the first.
        recipe: Defaults of everything else: a recipe's name or file, by default the one called like the task.
        tokenizer: A kind ("bpe", "word", "character"), a kind with options ("bpe:vocab_size=4000"), a
            folder with a tokenizer.json, or loaded ones.
        init: Weights to start from instead of random ones: the name of weights ("vanilla.en-pt"), a folder or a
            repository, of the same variant. Its settings and, unless `tokenizer` is given, its tokenizer are
            kept; a head or embeddings that do not fit the task are new.
        settings: Fields of [`zoo.models.ZooConfig`][] to build the variant with; they win over its preset and quirks,
            and must not contradict settings in its name.
        generation: Arguments of `generate` when outputs are scored.
        output_dir: Where to save the model and its tokenizer; by default nothing is kept.
        force: Whether a saved model there may be replaced, and checkpoints of an earlier run removed.
        resume: Whether to keep checkpoints in the folder `output_dir`-checkpoints, one an epoch unless `save_strategy`
            is given, and to go on from the last whole one that an earlier run has left there, if any. They are
            removed at the end.
        push: The repository on the Hugging Face Hub that gets the model at the end, as for [`zoo.push`][].
        with_code: Whether to push the code too, for use where the zoo is not installed.
        seed: Seed of weights and dropout, and unless `data_seed` is given, of the data: those that are set aside, their
            order, and what is drawn in them. By default the recipe's, or 0.
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
    given = {**locals(), "arguments": TrainingOptions(**arguments)}  # editors complete training options by this call
    request = TrainingRequest(**given)
    request.check()
    with places_taken(request):
        prepared = prepare(request)
        checkpoint = None
        if request.resume:
            checkpoint = going_on_from(request.checkpoints, prepared.model, prepared.identity(request.args))
            if request.args.process_index == 0:
                remove_except(request.checkpoints, checkpoint)
        with determinism(wanted=request.args.full_determinism):
            trainer = make_trainer(request, prepared)
            with trainer.hooks:
                if request.args.device.type == "cuda":
                    torch.cuda.reset_peak_memory_stats(request.args.device)  # earlier trainings of this process
                trainer.train(resume_from_checkpoint=checkpoint)
                trained = {"train_seconds": trainer.totals.elapsed(), "peak_memory": peak_memory(request.args.device)}
                trainer.check_trained()
                if request.output_dir is not None:
                    save_trained(trainer, prepared, request.output_dir, force=request.replaces)
                outputs, evaluated = evaluate_trained(request, prepared, trainer)
        report = report_of(request, prepared, trainer, **trained, **evaluated)
        pushed = keep_results(request, prepared, trainer, report)
    trained_model = without_mixed_precision(trainer.trained_model())
    return TrainingResult(trained_model, prepared.tokenizers, list(outputs), report, prepared.run, pushed)


spell_out(train, TrainingOptions)


@dataclass(frozen=True)
class Prepared:
    """A run that was checked to its last step."""

    task: DataTask
    tokenizers: Tokenizers
    splits: Splits  # Examples as texts
    encoded: Splits  # Examples as ids
    chosen_by: Any  # Encoded examples that the best checkpoint is chosen by
    model: PreTrainedModel
    run: RunRecord
    marks: dict[str, float]  # Numbers of tokens at which the model is saved, by name

    def identity(self, args: ZooTrainingArguments) -> dict[str, Any]:
        """Facts that identify a run, independent of the number of processes."""
        return self.run.identity(examples_a_batch=args.train_batch_size * args.world_size)


def prepare(request: TrainingRequest) -> Prepared:
    """Load the data, build the model, and refuse what would fail at a later step."""
    args, recipe = request.args, request.chosen
    task, tokenizers, splits, selection = load_examples(request)
    run = record_run(request.model, recipe, tokenizers, splits, selection=selection, seed=args.seed)
    model = request.model
    if isinstance(model, str) and recipe.init is not None:
        model = build_for(task, model, tokenizers, recipe, seed=args.seed)
    size = num_parameters(model, task, tokenizers, recipe)
    check_memory(size, args, memory_of(args.device), None if isinstance(model, str) else model)
    check_disk(size, args, request.output_dir, saves=request.saves)
    encoded = encode(task, splits, tokenizers, seed=args.order_seed)
    if args.process_index == 0 and (request.tell is not None or request.progress):
        kept = recipe.kept_sizes(model) if isinstance(model, str) else {}
        (request.tell or partial(print, file=sys.stderr))(overview(task, splits, encoded, kept))
    if isinstance(model, str):
        model = build_for(task, model, tokenizers, recipe, seed=args.seed)
    idle = check_data(model, run.variant, task, encoded, task.collator(tokenizers), args)
    marks = marks_of(args, task, splits.train, encoded.train, tokenizers)
    check_further_outputs(request, marks)
    chosen_by = encoded.heldout if selection is None else task.encode(selection, tokenizers)
    check_examples(model, chosen_by, "training")
    if args.ddp_find_unused_parameters is None:
        args.ddp_find_unused_parameters = bool(idle)
    check_generation(model, task, tokenizers, recipe.generation, encoded.heldout)
    return Prepared(task, tokenizers, splits, encoded, chosen_by, model, run, marks)


def load_examples(request: TrainingRequest) -> tuple[DataTask, Tokenizers, Splits, Any]:
    """Load the task, tokenizers, examples, and those to choose the best checkpoint by, None where it is not chosen."""
    task, data, progress = request.chosen.data_task(), request.data, request.progress
    with loading_bars(shown=progress):
        if isinstance(data, Splits):
            train, heldout = (given_examples(examples, task.kinds, request.columns) for examples in data)
            splits = without_leaks(replace(data, train=train, heldout=heldout), task.kinds)
        else:
            splits = task.load_from(request.source)
    task = task.fitted(splits)
    if isinstance(task, LabelsTask) and isinstance(request.model, PreTrainedModel):
        task = task.of_given(request.model.config)
    if isinstance(request.tokenizer, Tokenizers):
        tokenizers = request.tokenizer
    else:
        tokenizers = tokenizers_for(task, splits.train, request.chosen, is_given=request.tokenizer is not None)
    if request.chosen.init is None:
        check_beginning(task, tokenizers)
    splits = task.prepare(splits, tokenizers, progress=progress)
    if splits.duplicates:
        warnings.warn(leaks_message(splits), DataWarning, stacklevel=2)
    if not request.args.load_best_model_at_end and request.args.early_stopping_patience is None:
        return task, tokenizers, splits, None
    divided = task.set_aside(splits.train, seed=request.args.order_seed)
    kept_for_training, selection = without_leaks(divided, task.kinds)
    return task, tokenizers, replace(splits, train=kept_for_training), selection


def make_trainer(request: TrainingRequest, prepared: Prepared) -> ZooTrainer:
    """The trainer of a run, with callbacks in addition to those of its arguments."""
    args, callbacks = request.args, list(request.callbacks)
    if args.early_stopping_patience is not None:
        callbacks.append(EarlyStoppingCallback(args.early_stopping_patience, args.early_stopping_threshold))
    trainer = ZooTrainer(
        run=prepared.identity(args),
        model=prepared.model,
        args=args,
        data_collator=prepared.task.collator(prepared.tokenizers),
        train_dataset=prepared.encoded.train,
        eval_dataset=prepared.chosen_by,
        processing_class=prepared.tokenizers.target,
        callbacks=callbacks,
    )
    show_progress(trainer, prepared.run.variant if request.progress else None)
    if request.output_dir is not None:
        keep_logs(trainer, request.output_dir)
        if prepared.marks:
            save = partial(save_revision, trainer, prepared, request.output_dir)
            trainer.add_callback(Revisions(trainer, prepared.marks, save))
    return trainer


def evaluate_trained(
    request: TrainingRequest, prepared: Prepared, trainer: ZooTrainer
) -> tuple[Sequence[str], dict[str, Any]]:
    """The outputs of a trained model for held-out examples, and its numbers, with those of averaged weights."""
    trainer.eval_dataset = prepared.encoded.heldout
    began = time.perf_counter()
    with kept_in(request.output_dir):
        outputs, numbers = evaluate_weights(request, prepared, trainer)
        average = evaluate_average(request, prepared, trainer)
    return outputs, {**numbers, "average": average, "evaluation_seconds": time.perf_counter() - began}


def evaluate_weights(
    request: TrainingRequest, prepared: Prepared, trainer: ZooTrainer
) -> tuple[Sequence[str], dict[str, Any]]:
    task, scored = prepared.task, request.scored
    outputs = None if scored else Outputs.NONE
    predictions = predict(trainer, task, prepared.tokenizers, request.chosen.generation, outputs=outputs)
    scores = score(task, predictions, prepared.splits.heldout) if scored else {}
    return predictions.outputs, {"heldout_loss": predictions.loss, "scores": scores}


def evaluate_average(request: TrainingRequest, prepared: Prepared, trainer: ZooTrainer) -> dict[str, Any] | None:
    """Evaluate averaged weights, and save them next to the others; None if nothing was averaged."""
    average = trainer.average
    if average is None:
        return None
    if not average.updates:
        part, ended = f"the last {average.last:.0%} of its {trainer.state.max_steps} updates", trainer.state.global_step
        message = f"average={average.kind} has averaged nothing: the run ended after {ended} updates, before {part}"
        warnings.warn(message, ZooWarning, stacklevel=2)
        return None
    with average.in_place():
        if request.output_dir is not None:
            place = f"{Path(request.output_dir)}-average"
            save_trained(trainer, prepared, place, force=request.force or request.resume)
        _, numbers = evaluate_weights(request, prepared, trainer)
    scores = {name: asdict(score) for name, score in numbers["scores"].items()}
    return {"kind": average.kind, "updates": average.updates, **numbers, "scores": scores}


def report_of(request: TrainingRequest, prepared: Prepared, trainer: ZooTrainer, **measured: Any) -> TrainingReport:
    """Collect the numbers of a run: the trainer's, and what was measured besides."""
    args, run, state = request.args, prepared.run, trainer.state
    history = [entry for entry in state.log_history if "loss" in entry]
    together = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    report = TrainingReport(
        variant=run.variant,
        task=prepared.task.name,
        seed=args.seed,
        device=args.device.type,
        num_devices=args.world_size,
        num_parameters=trainer.trained_model().num_parameters(),
        train_examples=len(trainer.train_dataset) if run.data.train.examples else state.global_step * together,
        heldout_examples=len(trainer.eval_dataset),
        steps=state.global_step,
        best_step=state.best_global_step if args.load_best_model_at_end else None,
        epochs=None if is_streamed(trainer.train_dataset) else float(state.epoch or 0),
        train_tokens=trainer.total_tokens(),
        train_loss=history[-1]["loss"] if history else trainer.mean_loss(),
        history=history,
        evaluations=[entry for entry in state.log_history if "eval_loss" in entry],
        examples_per_update=together,
        **measured,
    )
    if isinstance(trainer.train_dataset, MixedBlocks):
        read = report.steps * min(together, report.train_examples)  # an epoch may be less than an update
        return replace(report, mixture=trainer.train_dataset.result(read))
    return report


def keep_results(
    request: TrainingRequest, prepared: Prepared, trainer: ZooTrainer, report: TrainingReport
) -> PushReport | None:
    """Write the report into the saved folder, push the model and its revisions if asked, and remove checkpoints."""
    pushed = None
    if request.output_dir is not None and trainer.is_world_process_zero():
        keep_report(request.output_dir, report.to_dict())
        reached = any(folder_of(request.output_dir, mark).is_dir() for mark in prepared.marks)
        if request.push is not None:
            from zoo.hub import push

            pushed = push(request.output_dir, request.push, revisions=reached, with_code=request.with_code)
        if request.resume:
            remove_checkpoints(request.checkpoints)
    trainer.accelerator.wait_for_everyone()
    return pushed


def save_trained(trainer: ZooTrainer, prepared: Prepared, output_dir: str | Path, *, force: bool) -> None:
    """Save a trained model, before anything that may fail is done with it."""
    state_dict = trainer.accelerator.get_state_dict(trainer.model) if trainer.is_fsdp_enabled else None
    if trainer.is_world_process_zero():
        model, tokenizers, run = trainer.trained_model(), prepared.tokenizers, prepared.run
        save_checkpoint(model, tokenizers, output_dir, force=force, state_dict=state_dict, run=run)


def save_revision(trainer: ZooTrainer, prepared: Prepared, output_dir: str | Path, mark: str) -> None:
    place, tokens = folder_of(output_dir, mark), trainer.total_tokens()
    save_trained(trainer, prepared, place, force=True)
    if trainer.is_world_process_zero():
        keep_report(place, {"steps": trainer.state.global_step, "train_tokens": tokens}, "checkpoint")


@contextmanager
def kept_in(output_dir: str | Path | None) -> Iterator[None]:
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
