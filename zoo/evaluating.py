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
from zoo.generation.checkpoint import TokenizerSource
from zoo.loading import class_of_task
from zoo.models import ZooPreTrainedModel
from zoo.tasks import DataTask, Score
from zoo.tasks.tables import Column
from zoo.training.arguments import training_arguments
from zoo.training.predicting import predict
from zoo.training.progress import LossProgress
from zoo.training.recipe import recipe_for
from zoo.training.trainer import ZooTrainer


@dataclass(frozen=True)
class Evaluation:
    """The numbers of an evaluation.

    Attributes:
        task: The task's name.
        examples: Number of examples.
        target_tokens: What the loss is the mean over: target tokens, ends included, padding excluded.
        loss: Cross-entropy per target token, in nats.
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
    task: str = "translation",
    *,
    data: str | Path | Dataset | None = None,
    columns: Sequence[Column] | None = None,
    tokenizer: TokenizerSource | None = None,
    batch_size: int = 128,
    generation: Mapping[str, Any] | None = None,
    n_bootstrap: int = 1000,
    progress: bool = False,
) -> Evaluation:
    """Compute a model's loss on examples, let it write, and score what it wrote.

    Loss and outputs are computed as at the end of training, so that a checkpoint gets the numbers of its own report.

    Args:
        model: A checkpoint's folder, a repository on the Hub ("org/name"), or a model.
        task: A name in [`zoo.tasks.TASKS`][].
        data: Examples: a file, all of which is used; a folder, of which the held-out file is; or loaded ones. By
            default what ships with the zoo.
        columns: Names or numbers of the columns to read, by default the first ones.
        tokenizer: The tokenizer or the folder it is in, by default the one beside the checkpoint.
        batch_size: Number of examples at a time.
        generation: What `generate` is called with, besides what the task's recipe says.
        n_bootstrap: How often to resample the examples for confidence intervals; 1 for none.
        progress: Whether to show a progress bar.

    Returns:
        The numbers, and the outputs.

    Raises:
        ConfigError: When the model is not made for the task.
        DataError: When the data cannot be used.
        CheckpointError: When there is no such checkpoint, or no tokenizer beside it.
    """
    recipe = recipe_for(task).changed(generation=generation)
    data_task = recipe.data_task()
    examples = data if isinstance(data, Dataset) else heldout_examples(data_task, data, columns)
    evaluated, tokenizers = load_checkpoint(model, tokenizer=tokenizer)
    model_class = class_of_task(data_task.model_task)
    if isinstance(evaluated, ZooPreTrainedModel) and not isinstance(evaluated, model_class):
        raise ConfigError(
            f"task {task!r} needs a model for {data_task.model_task} ({model_class.__name__}), and this is a "
            f"{type(evaluated).__name__}"
        )
    data_task = data_task.fitted_to(evaluated.config)
    encoded = data_task.encode(examples, tokenizers)
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
            trainer.add_callback(LossProgress(task))
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
