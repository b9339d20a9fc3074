"""Labels by a trained model: one a text, or one a word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from zoo.base.errors import ConfigError
from zoo.converters.weights import task_of
from zoo.data.tokenizers import Tokenizers
from zoo.data.tokenizers.encoding import pieces_of, to_ids
from zoo.registry import Task
from zoo.training.generation import load_checkpoint
from zoo.training.generation.checkpoint import TokenizerSource

LABELLED = (Task.SEQUENCE_CLASSIFICATION.value, Task.TOKEN_CLASSIFICATION.value)
"""Tasks of models that label."""


@dataclass(frozen=True)
class Label:
    """Prediction for a text or a word."""

    text: str  # The text or the word
    # The most probable label; of a model for regression, its values; None for a text with labelled words
    label: str | None = None
    score: float | None = None  # The label's probability; None without one
    # The labels of a text's words, of a model for token classification; or of numbered positions, of one for sequence
    # classification with `classifier_positions`
    words: tuple[Label, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def predict(
    model: str | Path | PreTrainedModel,
    texts: Sequence[str],
    *,
    tokenizer: TokenizerSource | None = None,
    batch_size: int = 32,
    device: str | torch.device | None = None,
    engine: str | None = None,
) -> list[Label]:
    """Label texts, or their words, as the model was trained to.

    Args:
        model: A checkpoint's folder, the name of weights ("vanilla.en-pt"), a repository on the Hub ("org/name"), or a
            model: for sequence or token classification.
        texts: The texts. For token classification, words are separated by blanks.
        tokenizer: The tokenizer or the folder it is in, by default the one next to the checkpoint.
        batch_size: Number of texts at a time.
        device: Where the model runs; by default the GPU if available.
        engine: The engine, as for [`zoo.generate`][].

    Returns:
        A label for each text; with token classification, one that holds a label for each word, and with
        `classifier_positions` for each position.

    Raises:
        ConfigError: When the model labels nothing.
        CheckpointError: When the checkpoint does not exist, or has no tokenizer next to it.
    """
    if isinstance(texts, str):
        raise ConfigError("a single text was given; give a list of texts")
    loaded, tokenizers = load_checkpoint(model, tokenizer=tokenizer, device=device, engine=engine)
    task = task_of(loaded)
    if task not in LABELLED:
        raise ConfigError(
            f"a {type(loaded).__name__} for {task} labels nothing; models for {' and '.join(LABELLED)} do"
            + ("; zoo.generate lets this one write" if loaded.can_generate() else "")
        )
    label = label_texts if task == Task.SEQUENCE_CLASSIFICATION else label_words
    batches = (list(texts[start : start + batch_size]) for start in range(0, len(texts), batch_size))
    return [found for batch in batches for found in label(loaded, tokenizers, batch)]


def label_texts(model: PreTrainedModel, tokenizers: Tokenizers, texts: Sequence[str]) -> list[Label]:
    rows = to_ids(tokenizers.source, texts)
    labelled = list(zip(texts, logits_of(model, tokenizers, rows), strict=True))
    if model.config.classifier_positions is None:
        return [label_of(model, text, row) for text, row in labelled]
    return [
        Label(text, words=tuple(label_of(model, str(place), row) for place, row in enumerate(positions, start=1)))
        for text, positions in labelled
    ]


def label_words(model: PreTrainedModel, tokenizers: Tokenizers, texts: Sequence[str]) -> list[Label]:
    end = tokenizers.source.eos_token_id
    words = [text.split() for text in texts]
    pieces = [pieces_of(tokenizers.source, row) for row in words]
    rows = [[*(piece for word in row for piece in word), *([] if end is None else [end])] for row in pieces]
    labels = [Label(text) for text in texts]
    filled = [place for place, row in enumerate(words) if row]
    for place, logits in zip(filled, logits_of(model, tokenizers, [rows[place] for place in filled]), strict=True):
        firsts = accumulate((len(piece) for piece in pieces[place][:-1]), initial=0)
        found = (label_of(model, word, logits[first]) for word, first in zip(words[place], firsts, strict=True))
        labels[place] = Label(texts[place], words=tuple(found))
    return labels


@torch.inference_mode()
def logits_of(model: PreTrainedModel, tokenizers: Tokenizers, rows: Sequence[Sequence[int]]) -> Tensor:
    """Logits of a batch, (batch_size, num_labels) or (batch_size, seq_len or classifier_positions, num_labels)."""
    if not rows:
        return torch.empty(0)
    batch = tokenizers.source.pad({"input_ids": [list(row) for row in rows]}, return_tensors="pt").to(model.device)
    logits: Tensor = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    return logits.float().cpu()


def label_of(model: PreTrainedModel, text: str, logits: Tensor) -> Label:
    """The best label of logits, (num_labels,), with its probability; of a model for regression, its values."""
    problem = getattr(model.config, "problem_type", None)
    if len(logits) == 1 or problem == "regression":
        return Label(text, ", ".join(f"{value:.4g}" for value in logits.tolist()), None)
    # Several labels at once have a probability each, and together not one.
    probabilities = logits.sigmoid() if problem == "multi_label_classification" else logits.softmax(-1)
    probability, best = probabilities.max(-1)
    return Label(text, str(model.config.id2label[int(best)]), float(probability))
