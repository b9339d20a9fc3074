"""How good a trained model is, on examples it has not seen."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PreTrainedModel, PrinterCallback, ProgressCallback

from zoo.errors import ConfigError
from zoo.generation import load_checkpoint
from zoo.generation.checkpoint import TokenizerSource, folder_of
from zoo.loading import class_of_task
from zoo.models import ZooPreTrainedModel
from zoo.tasks import DataTask, Score, split_name
from zoo.tasks.tables import Column
from zoo.training.arguments import training_arguments
from zoo.training.predicting import check_generation, predict
from zoo.training.progress import LossProgress
from zoo.training.recipe import Recipe, recipe_for
from zoo.training.record import saved_run
from zoo.training.trainer import ZooTrainer

USUAL_TASKS = {
    "seq2seq-lm": "translation",
    "causal-lm": "language-modeling",
    "masked-lm": "masked-language-modeling",
    "sequence-classification": "text-classification",
    "token-classification": "token-classification",
}
"""What a model is evaluated on when nobody knows what it was trained on."""


@dataclass(frozen=True)
class Evaluation:
    """The numbers of an evaluation.

    Attributes:
        task: The task's name.
        examples: Number of examples.
        target_tokens: What the loss is the mean over: target tokens, ends included, padding excluded; or labels.
        loss: Cross-entropy per target token or label, in nats.
        scores: Scores of the generated outputs, with 95 % confidence intervals.
        outputs: What the model wrote, in the order of the examples.
        seconds: Wall-clock time of loss and generation.
    """

    task: str
    examples: int
    target_tokens: int
    loss: float
    scores: dict[str, Score]
    outputs: list[str]
    seconds: float

    @property
    def perplexity(self) -> float:
        """Among how many equally likely tokens the model wavers: e to the power of the loss."""
        return math.exp(self.loss)

    def to_dict(self) -> dict[str, Any]:
        """Write it as plain data.

        Returns:
            All fields, and the perplexity.
        """
        return {**asdict(self), "perplexity": self.perplexity}


def evaluate(
    model: str | Path | PreTrainedModel,
    task: str | None = None,
    *,
    data: str | Path | Dataset | None = None,
    columns: Sequence[Column] | None = None,
    tokenizer: TokenizerSource | None = None,
    batch_size: int = 128,
    generation: Mapping[str, Any] | None = None,
    n_bootstrap: int = 1000,
    progress: bool = False,
    engine: str | None = None,
) -> Evaluation:
    """Compute a model's loss on examples, let it write, and score what it wrote.

    Loss and outputs are computed as at the end of training, so that a checkpoint gets the numbers of its own report.

    Args:
        model: A checkpoint's folder, a repository on the Hub ("org/name"), or a model.
        task: A name in [`zoo.tasks.TASKS`][], possibly with options; by default what the checkpoint was trained on, and
            where that is not known, the usual task of such a model.
        data: Examples: a file, all of which is used; a folder, of which the held-out file is; or loaded ones. By
            default what ships with the zoo.
        columns: Names or numbers of the columns to read, by default the first ones.
        tokenizer: The tokenizer or the folder it is in, by default the one beside the checkpoint.
        batch_size: Number of examples at a time.
        generation: What `generate` is called with, besides what the task's recipe says.
        n_bootstrap: How often to resample the examples for confidence intervals; 1 for none.
        progress: Whether to show a progress bar.
        engine: Where a checkpoint runs, as for [`zoo.generate`][].

    Returns:
        The numbers, and the outputs.

    Raises:
        ConfigError: When the model is not made for the task.
        DataError: When the data cannot be used.
        CheckpointError: When there is no such checkpoint, or no tokenizer beside it.
    """
    evaluated, tokenizers = load_checkpoint(model, tokenizer=tokenizer, engine=engine)
    recipe = evaluation_recipe(model, evaluated, task).changed(generation=generation)
    data_task = recipe.data_task()
    model_class = class_of_task(data_task.model_task)
    if isinstance(evaluated, ZooPreTrainedModel) and not isinstance(evaluated, model_class):
        raise ConfigError(
            f"task {data_task.name!r} needs a model for {data_task.model_task} ({model_class.__name__}), and this is a "
            f"{type(evaluated).__name__}"
        )
    check_generation(evaluated, data_task, tokenizers, recipe.generation)
    data_task = data_task.fitted_to(evaluated.config)
    examples = data if isinstance(data, Dataset) else heldout_examples(data_task, data, columns)
    encoded: Any = data_task.encode(examples, tokenizers)
    with tempfile.TemporaryDirectory() as scratch:
        arguments = {"per_device_eval_batch_size": batch_size, "use_cpu": evaluated.device.type == "cpu"}
        trainer = ZooTrainer(
            model=evaluated,
            args=training_arguments(arguments, output_dir=scratch, seed=0, progress=progress),
            data_collator=data_task.collator(tokenizers),
            eval_dataset=encoded,
            processing_class=tokenizers.target,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.remove_callback(ProgressCallback)
        if progress:
            trainer.add_callback(LossProgress(data_task.name))
        began = time.perf_counter()
        predictions = predict(trainer, data_task, tokenizers, recipe.generation)
        seconds = time.perf_counter() - began
    return Evaluation(
        task=data_task.name,
        examples=len(encoded),
        target_tokens=predictions.num_labels,
        loss=predictions.loss,
        scores=dict(data_task.score(predictions, examples, n_bootstrap=n_bootstrap)),
        outputs=list(predictions.outputs),
        seconds=seconds,
    )


def evaluation_recipe(model: str | Path | PreTrainedModel, loaded: PreTrainedModel, task: str | None) -> Recipe:
    """Find out how a model is to be evaluated: as at the end of its training, where that is known.

    Args:
        model: What was given.
        loaded: The model.
        task: The task that was asked for, if any was.

    Returns:
        The recipe.
    """
    run = None if isinstance(model, PreTrainedModel) else saved_run(folder_of(model))
    saved = None if run is None else run.recipe
    if task is None:
        fallback = "translation" if loaded.config.is_encoder_decoder else "language-modeling"
        usual = (name for head, name in USUAL_TASKS.items() if isinstance(loaded, class_of_task(head)))
        return saved if saved is not None else recipe_for(next(usual, fallback))
    return recipe_for(task, saved if saved is not None and saved.task == split_name(task)[0] else None)


def heldout_examples(task: DataTask, data: str | Path | None, columns: Sequence[Column] | None) -> Dataset:
    """Load the examples to evaluate on.

    Args:
        task: The task.
        data: A file, a folder, or None for what ships with the zoo.
        columns: Names or numbers of the columns to read.

    Returns:
        All examples of a file, or the held-out ones of a folder.
    """
    whole = data if data is not None and Path(data).is_file() else None
    return task.load(data, heldout=whole, columns=columns).heldout
