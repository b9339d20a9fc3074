"""How good a trained model is, on examples it has not seen."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel

from zoo.base.errors import ConfigError, DataError, ZooError, ZooWarning
from zoo.base.files import without_folders
from zoo.base.folders import read_result, scratch_folder
from zoo.building.weights import locate
from zoo.converters.weights import task_of
from zoo.data.corpora import located
from zoo.data.tasks import DataSource, DataTask, Score, full_path, split_name
from zoo.data.tasks.labels import LabelsTask
from zoo.data.tasks.libraries import loading_bars
from zoo.data.tasks.scores import perplexity_of
from zoo.data.tasks.sources import are_parts, given_examples
from zoo.data.tasks.tables import Column
from zoo.data.tasks.text_task import RawTextTask
from zoo.training.answers import Answer, answers_of, write_report
from zoo.training.arguments import training_arguments
from zoo.training.generation import load_checkpoint
from zoo.training.generation.checkpoint import TokenizerSource
from zoo.training.predicting import check_generation, predict, score
from zoo.training.preflight import check_head, check_sight
from zoo.training.progress import show_progress
from zoo.training.recipe import Recipe, recipe_for, usual_task
from zoo.training.record import RunRecord, digest_of_examples, saved_run
from zoo.training.trainer import ZooTrainer

OWN_DATA = "the zoo's own corpus"  # Name of examples that ship with a task, or that it makes


def examples_of_run(run: RunRecord | None, task: DataTask, model: str) -> tuple[Dataset, str]:
    shipped = f"; those that ship with the zoo are in {task.shipped}" if task.shipped is not None else ""
    how = f"name the examples to evaluate on: --data FILE|FOLDER or --heldout FILE{shipped}"
    if task.makes_examples and (run is None or run.recipe.task != task.name):
        return task.load().heldout, OWN_DATA  # the task's name names them
    if run is None:
        raise ConfigError(f"{model} has no record of its training data; {how}")
    if run.recipe.task != task.name:
        raise ConfigError(f"{model} was trained on {run.recipe.task}, and not on {task.name}; {how}")
    source = run.data.source
    if source is None:
        raise ConfigError(f"{model} was trained on examples that were given as objects, and are not here; {how}")
    place, subject = source.heldout or source.data, f"the held-out examples of {model}'s training"
    try:
        examples = task.load_from(source).heldout
    except ZooError as error:
        raise ConfigError(
            f"the held-out examples of {model}'s training cannot be read again: {error}; {how}"
        ) from error
    if digest_of_examples(examples) != run.data.heldout.sha256:
        raise ConfigError(f"{subject} are not what they were: {place or OWN_DATA} has changed; {how}")
    return examples, file_name(place)


def file_name(place: str | None) -> str:
    return OWN_DATA if place is None else without_folders(place)


EVALUATED_WITH = ("bf16", "fp16", "tf32", "bf16_full_eval", "fp16_full_eval")
"""Training arguments that decide in which precision the held-out loss is computed."""

BATCH_SIZE = 128  # Batch size without a record of a run


class EvaluationWarning(ZooWarning):
    """An evaluation that does not come out as it did at the end of training."""


@dataclass(frozen=True)
class Evaluation:
    """The numbers of an evaluation."""

    task: str
    data: str  # Name of the examples: that of their file
    repeats_training: bool  # Whether they are the held-out examples of the model's own training
    examples: int
    target_tokens: int  # Unit of the mean loss: target tokens, ends included, padding excluded; or labels
    loss: float  # Cross-entropy per target token or label, in nats
    scores: dict[str, Score]  # Scores of the generated outputs, with 95 % confidence intervals
    outputs: list[str]
    seconds: float  # Wall-clock time of loss and generation
    # Each example with the model's output; none for tasks without outputs
    answers: tuple[Answer, ...] = field(default=(), repr=False)
    labels: tuple[str, ...] = ()  # The labels of a classifier, which has no perplexity

    @property
    def perplexity(self) -> float | None:
        """Among how many equally likely tokens the model wavers: e to the power of the loss; None for a classifier."""
        return None if self.labels else perplexity_of(self.loss)

    def to_dict(self) -> dict[str, Any]:
        written = {name: value for name, value in asdict(self).items() if name not in ("answers", "labels")}
        return written if self.perplexity is None else {**written, "perplexity": self.perplexity}


def evaluate(
    model: str | Path | PreTrainedModel,
    task: str | None = None,
    *,
    data: str | Path | Dataset | None = None,
    heldout: str | Path | None = None,
    columns: Sequence[Column] | None = None,
    tokenizer: TokenizerSource | None = None,
    batch_size: int | None = None,
    generation: Mapping[str, Any] | None = None,
    n_bootstrap: int = 1000,
    progress: bool = False,
    engine: str | None = None,
    report: str | Path | None = None,
) -> Evaluation:
    """Compute a model's loss on examples, let it write, and score what it wrote.

    Loss and outputs are computed as at the end of training. A checkpoint knows its data: if none are named, it is
    evaluated on the held-out examples of its training, and gets the numbers of its own report.

    Args:
        model: A checkpoint's folder, the name of weights ("vanilla.en-pt"), a repository on the Hub ("org/name"), or a
            model.
        task: A name in [`zoo.data.tasks.TASKS`][], possibly with options; by default what the checkpoint was trained
            on, and where that is not known, the usual task of such a model.
        data: Other examples: a file, used as a whole; a folder with a held-out file; or loaded ones.
        heldout: A file of other examples, used as a whole.
        columns: Names or numbers of the columns of `data` or `heldout`, by default those that training read.
        tokenizer: The tokenizer or the folder it is in, by default the one next to the checkpoint.
        batch_size: Number of examples at a time, by default as in training.
        generation: Arguments of `generate`, in addition to those of the task's recipe.
        n_bootstrap: How often to resample the examples for confidence intervals; 1 for none.
        progress: Whether to show a progress bar.
        engine: Where a checkpoint runs, as for [`zoo.generate`][].
        report: A folder for what a classifier gets wrong: confusion matrix, scores of every label, worst examples.

    Returns:
        The numbers, and the outputs.

    Raises:
        ConfigError: When the model is not made for the task, both data and heldout are given, a report is asked for
            that needs labels, or no examples are named and those of its training are not known, not there, or not what
            they were.
        DataError: When the data cannot be used.
        CheckpointError: When the checkpoint does not exist, or has no tokenizer next to it.
    """
    if data is not None and heldout is not None:
        raise ConfigError("data and heldout are both given, and one of them is evaluated on; give one")
    folder = None if isinstance(model, nn.Module) else locate(model)
    evaluated, tokenizers = load_checkpoint(model if folder is None else folder, tokenizer=tokenizer, engine=engine)
    run = None if folder is None else saved_run(folder)
    recipe = evaluation_recipe(run, evaluated, task).changed(generation=generation)
    recipe.check_generation(generation)
    data_task = recipe.data_task()
    check_head(evaluated, data_task)
    if report is not None and not isinstance(data_task, LabelsTask):
        raise ConfigError(f"an error report needs labels, and {data_task.name} has none")
    if (problem := data_task.misfit(evaluated.config)) is not None:
        raise ConfigError(problem)
    data_task = data_task.fitted_to(evaluated.config)
    name = str(model) if folder is not None else f"the {type(evaluated).__name__}"
    repeats = data is None and heldout is None
    with loading_bars(shown=progress):
        examples, called = chosen_examples(run, data_task, name, data, heldout, columns)
    encoded: Any = data_task.encode(examples, tokenizers)
    check_sight(evaluated, data_task, encoded)
    check_generation(evaluated, data_task, tokenizers, recipe.generation, encoded)
    with scratch_folder() as scratch:
        saved = None if folder is None else read_result(folder).get("report")
        reported: Mapping[str, Any] = saved if isinstance(saved, Mapping) else {}
        on_cpu = evaluated.device.type == "cpu"
        precise = on_cpu and reported.get("device") != "cpu"  # which computes slowly in an accelerator's types
        arguments = evaluation_arguments(run, batch_size, use_cpu=on_cpu, precise=precise)
        args = training_arguments(arguments, output_dir=scratch, seed=0, progress=progress)
        collator, target = data_task.collator(tokenizers), tokenizers.target
        trainer = ZooTrainer(
            model=evaluated, args=args, data_collator=collator, eval_dataset=encoded, processing_class=target
        )
        show_progress(trainer, data_task.name if progress else None)
        began = time.perf_counter()
        predictions = predict(trainer, data_task, tokenizers, recipe.generation)
        seconds = time.perf_counter() - began
    if repeats and batch_size is None and engine is None:
        compare_with_report(predictions.loss, reported, evaluated.device.type)
    evaluation = Evaluation(
        task=data_task.name,
        data=called,
        repeats_training=repeats,
        examples=len(encoded),
        target_tokens=predictions.num_labels,
        loss=predictions.loss,
        scores=score(data_task, predictions, examples, n_bootstrap=n_bootstrap),
        outputs=list(predictions.outputs),
        seconds=seconds,
        answers=tuple(answers_of(data_task, examples, predictions)),
        labels=data_task.labels if isinstance(data_task, LabelsTask) else (),
    )
    if report is not None:
        write_report(Path(report), f"{name} on {called}", evaluation.answers, evaluation.labels)
    return evaluation


def chosen_examples(
    run: RunRecord | None,
    task: DataTask,
    model: str,
    data: str | Path | Dataset | None,
    heldout: str | Path | None,
    columns: Sequence[Column] | None,
) -> tuple[Dataset, str]:
    """Load the examples that were named, or those that a run held out; and what they are called."""
    trained_on = DataSource() if run is None or run.data.source is None else run.data.source
    if isinstance(data, Dataset):
        if not len(data):
            raise DataError("the given dataset has no examples")
        if not are_parts(data) and {*(trained_on.columns or ())} <= {*data.column_names}:
            columns = trained_on.columns if columns is None else columns
        return given_examples(data, task.kinds, columns), "given examples"
    if data is None and heldout is None:
        if columns is not None:
            raise ConfigError("columns are given without the data that have them; give data or heldout as well")
        return examples_of_run(run, task, model)
    if isinstance(task, RawTextTask):
        task.check_columns(columns, data, heldout)
    columns = trained_on.columns if columns is None else columns
    place = heldout if data is None else located(data)
    whole = place if data is None or Path(place or "").is_file() else None
    named = full_path(heldout if heldout is not None else data)
    # By the seed of the training, nothing that was trained on is held out of the same data.
    splits = task.load(place, heldout=whole, columns=columns, seed=trained_on.seed)
    if splits.is_divided:
        warnings.warn(
            f"{place} has no held-out part: only {len(splits.heldout):,} of its examples are scored, those set "
            "aside when it is trained on; give a file to score all of it",
            EvaluationWarning,
            stacklevel=3,
        )
    return splits.heldout, file_name(named)


def evaluation_recipe(run: RunRecord | None, loaded: PreTrainedModel, task: str | None) -> Recipe:
    """Find out how a model is to be evaluated: as at the end of its training, where that is known."""
    saved = None if run is None else run.recipe
    if task is None:
        fallback = "translation" if loaded.config.is_encoder_decoder else "language-modeling"
        return saved if saved is not None else recipe_for(usual_task([task_of(loaded)], fallback))
    return recipe_for(task, saved if saved is not None and saved.task == split_name(task)[0] else None)


def evaluation_arguments(
    run: RunRecord | None, batch_size: int | None, *, use_cpu: bool, precise: bool
) -> dict[str, Any]:
    """Find out how the loss is to be computed: as at the end of training if known, or in float32 if `precise`."""
    size = "per_device_eval_batch_size"
    trained = {size: BATCH_SIZE} if run is None else run.recipe.arguments
    kept = (size, *(() if precise else EVALUATED_WITH))
    known = {name: trained[name] for name in kept if name in trained}
    return {"use_cpu": use_cpu, **known, **({} if batch_size is None else {size: batch_size})}


def compare_with_report(loss: float, report: Mapping[str, Any], device: str) -> None:
    """Warn if an evaluation does not repeat the numbers of the training's end."""
    if report.get("heldout_loss") not in (None, loss):
        there = report.get("device")
        on = "" if there == device else f", and was computed on {there}"
        message = f"the loss is {loss}; at the end of training it was {report.get('heldout_loss')}{on}"
        warnings.warn(message, EvaluationWarning, stacklevel=3)
