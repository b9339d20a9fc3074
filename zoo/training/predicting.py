"""Predictions of a trained model for evaluation examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset
from torch import Tensor
from torch.utils.data import Subset
from transformers import PreTrainedModel

from zoo.base.errors import UnsupportedOperationError
from zoo.data.tasks import DataTask, Outputs, Predictions, Tokenizers
from zoo.fast.chunked_loss import IGNORED
from zoo.training.generation.generating import generation_config

from .sampling import lengths_of

if TYPE_CHECKING:
    from .trainer import ZooTrainer

PREFIX = "heldout"


def check_generation(
    model: PreTrainedModel, task: DataTask, tokenizers: Tokenizers, generation: Mapping[str, Any]
) -> None:
    """Refuse options of generation while nothing is lost by it."""
    if task.outputs == Outputs.GENERATED:
        generation_config(model, tokenizers.target, generation)


def predict(
    trainer: ZooTrainer,
    task: DataTask,
    tokenizers: Tokenizers,
    generation: Mapping[str, Any],
    *,
    outputs: Outputs | None = None,
) -> Predictions:
    """Compute the loss of a trainer's evaluation data, and the outputs that the task is scored by.

    Args:
        generation: What `generate` is called with, where outputs are generated.
        outputs: How outputs come about, by default as the task wants it.
    """
    wanted = task.outputs if outputs is None else outputs
    if wanted == Outputs.GENERATED:
        return generated(trainer, tokenizers, generation)
    if wanted == Outputs.PREDICTED:
        return predicted(trainer, task, tokenizers)
    only_loss, trainer.args.prediction_loss_only = trainer.args.prediction_loss_only, True
    try:
        metrics = trainer.predict(trainer.eval_dataset, metric_key_prefix=PREFIX).metrics
    finally:
        trainer.args.prediction_loss_only = only_loss
    return Predictions(**measured(metrics))


def generated(trainer: ZooTrainer, tokenizers: Tokenizers, generation: Mapping[str, Any]) -> Predictions:
    """Let a model write, in batches of similar lengths."""
    dataset = trainer.eval_dataset
    order = by_length(lengths_of(dataset))
    generates, trainer.args.predict_with_generate = trainer.args.predict_with_generate, True
    try:
        found = trainer.predict(chosen(dataset, order), metric_key_prefix=PREFIX, **generation)
    finally:
        trainer.args.predict_with_generate = generates
    tokenizer = tokenizers.target
    ids = np.where(found.predictions < 0, tokenizer.pad_token_id, found.predictions)
    texts = [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]
    return Predictions(**measured(found.metrics), outputs=in_place(texts, order))


def predicted(trainer: ZooTrainer, task: DataTask, tokenizers: Tokenizers) -> Predictions:
    """Take the best id at every label, in batches of similar lengths."""
    dataset = trainer.eval_dataset
    order = by_length(lengths_of(dataset))
    before, trainer.preprocess_logits_for_metrics = trainer.preprocess_logits_for_metrics, best_ids
    try:
        found = trainer.predict(chosen(dataset, order), metric_key_prefix=PREFIX)
    finally:
        trainer.preprocess_logits_for_metrics = before
    rows = zip(*(np.atleast_2d(column.T).T for column in (found.label_ids, *found.predictions)), strict=True)
    counted = [[column[row[0] != IGNORED] for column in row] for row in rows]
    labels, ids, probabilities = (in_place([row[side] for row in counted], order) for side in range(3))
    return Predictions(
        **measured(found.metrics),
        outputs=task.texts(ids, tokenizers),
        ids=ids,
        labels=labels,
        probabilities=probabilities,
    )


def best_ids(logits: Any, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The best ids of the logits, (..., num_ids), and their probabilities, each (...), which saves memory."""
    if isinstance(logits, tuple) and not logits:
        raise UnsupportedOperationError(
            "this task is scored by logits, and the model's engine returns none; evaluate it in torch, onnx or openvino"
        )
    first: Tensor = logits[0] if isinstance(logits, tuple) else logits
    highest, ids = first.float().max(dim=-1)
    return ids, (highest - first.float().logsumexp(dim=-1)).exp()


def by_length(lengths: Sequence[int]) -> list[int]:
    """Order examples so that those of similar lengths are neighbours."""
    return sorted(range(len(lengths)), key=lambda i: lengths[i])


def chosen(dataset: Any, places: Sequence[int]) -> Any:
    return dataset.select(places) if isinstance(dataset, Dataset) else Subset(dataset, places)


def in_place(found: Sequence[Any], order: Sequence[int]) -> list[Any]:
    """Undo an order."""
    placed: list[Any] = [None] * len(order)
    for place, one in zip(order, found, strict=True):
        placed[place] = one
    return placed


def measured(metrics: Mapping[str, float]) -> dict[str, Any]:
    """Read what the trainer measured."""
    return {"loss": float(metrics[f"{PREFIX}_loss"]), "num_labels": int(metrics[f"{PREFIX}_labels"])}
