"""Labels by a trained model: one a text, one a word, or the word at a mask."""

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
from zoo.base.folders import read_result
from zoo.building.weights import locate
from zoo.converters.weights import task_of
from zoo.data.tokenizers import Tokenizers
from zoo.data.tokenizers.encoding import frame_of, pieces_of, to_ids
from zoo.fast.matmul import fast_matmul
from zoo.registry import Task
from zoo.training.generation import load_checkpoint
from zoo.training.generation.checkpoint import TokenizerSource
from zoo.training.generation.generating import pad


@dataclass(frozen=True)
class Label:
    """Prediction for a text or a word."""

    text: str  # The text or the word
    # The most probable label; of a model for regression, its values; None for a text with labelled words, and for a
    # word that was cut off
    label: str | None = None
    score: float | None = None  # The label's probability; None without one
    # The labels of a text's words, of a model for token classification; of numbered positions, of one for sequence
    # classification with `classifier_positions`; or of several masks, of a masked language model
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
    """Label texts or their words, or guess the words at their masks, as the model was trained to.

    Texts are cut at the `max_length` of the checkpoint's training, as they were there; words beyond it get no label.

    Args:
        model: A checkpoint's folder, the name of weights ("vanilla.en-pt"), a repository on the Hub ("org/name"), or a
            model: for sequence or token classification, or masked language modelling.
        texts: The texts. For token classification, words are separated by blanks; a masked language model guesses the
            tokens at the tokenizer's `mask_token`.
        tokenizer: The tokenizer or the folder it is in, by default the one next to the checkpoint.
        batch_size: Number of texts at a time.
        device: Where the model runs; by default the GPU if available.
        engine: The engine, as for [`zoo.generate`][].

    Returns:
        A label for each text; with token classification, one that holds a label for each word, with
        `classifier_positions` for each position, and of a text with several masks for each mask.

    Raises:
        ConfigError: When the model labels nothing, or a text for a masked language model has no mask.
        CheckpointError: When the checkpoint does not exist, or has no tokenizer next to it.
    """
    if isinstance(texts, str):
        raise ConfigError("a single text was given; give a list of texts")
    if batch_size < 1:
        raise ConfigError(f"batch_size={batch_size} is not valid; at least 1 text at a time")
    loaded, tokenizers = load_checkpoint(model, tokenizer=tokenizer, device=device, engine=engine)
    task = task_of(loaded)
    if (label := LABELLING.get(task)) is None:
        raise ConfigError(
            f"a {type(loaded).__name__} for {task} labels nothing; models for {', '.join(LABELLING)} do"
            + ("; zoo.generate lets this one write" if loaded.can_generate() else "")
        )
    longest = length_of_training(locate(model)) if isinstance(model, (str, Path)) else None
    batches = (list(texts[start : start + batch_size]) for start in range(0, len(texts), batch_size))
    return [found for batch in batches for found in label(loaded, tokenizers, batch, longest)]


def length_of_training(folder: str | Path) -> int | None:
    """The `max_length` of a recorded training, None without one. Reading the whole record would import `datasets`."""
    try:
        length = read_result(folder)["recipe"]["task_options"].get("max_length")
    except (LookupError, TypeError, AttributeError):
        return None
    return length if isinstance(length, int) else None


def label_texts(
    model: PreTrainedModel, tokenizers: Tokenizers, texts: Sequence[str], longest: int | None
) -> list[Label]:
    rows = [row[:longest] for row in to_ids(tokenizers.source, texts)]
    labelled = list(zip(texts, logits_of(model, rows), strict=True))
    if model.config.classifier_positions is None:
        return [label_of(model, text, row) for text, row in labelled]
    return [
        Label(text, words=tuple(label_of(model, str(place), row) for place, row in enumerate(positions, start=1)))
        for text, positions in labelled
    ]


def label_words(
    model: PreTrainedModel, tokenizers: Tokenizers, texts: Sequence[str], longest: int | None
) -> list[Label]:
    words = [text.split() for text in texts]
    pieces = [pieces_of(tokenizers.source, row) for row in words]
    before, after = frame_of(tokenizers.source, next(filter(str.strip, texts), ""))
    rows = [[*before, *(piece for word in row for piece in word), *after][:longest] for row in pieces]
    labels = [Label(text) for text in texts]
    filled = [place for place, row in enumerate(words) if row]
    for place, logits in zip(filled, logits_of(model, [rows[place] for place in filled]), strict=True):
        firsts = accumulate((len(piece) for piece in pieces[place][:-1]), initial=len(before))
        found = (
            label_of(model, word, logits[first]) if first < len(rows[place]) else Label(word, None, None)
            for word, first in zip(words[place], firsts, strict=True)
        )
        labels[place] = Label(texts[place], words=tuple(found))
    return labels


def label_masks(
    model: PreTrainedModel, tokenizers: Tokenizers, texts: Sequence[str], longest: int | None
) -> list[Label]:
    mask = tokenizers.source.mask_token
    labels = []
    for text, masks in zip(texts, guesses(model, tokenizers, texts), strict=True):
        if not masks:
            raise ConfigError(f"{text!r} has no {mask}, where a masked language model guesses a word; write one")
        words = tuple(Label(str(mask), *best) for best, *_ in masks)
        labels.append(Label(text, words[0].label, words[0].score) if len(words) == 1 else Label(text, words=words))
    return labels


def guesses(
    model: PreTrainedModel, tokenizers: Tokenizers, texts: Sequence[str], number: int = 1
) -> list[list[list[tuple[str, float]]]]:
    """The most probable tokens of a masked language model, with their probabilities, for every mask of every text."""
    from zoo.training.suites.scoring import begin, mask_of

    tokenizer = tokenizers.source
    mask, rows = mask_of(tokenizer), to_ids(tokenizer, texts)
    earlier = int(getattr(model.config, "masked_next_token", False))  # predicts a token one position earlier
    rows = [[begin(tokenizer), *row] if earlier and row[:1] == [mask] else row for row in rows]
    found = []
    for row, logits in zip(rows, logits_of(model, rows), strict=True):
        places = [place - earlier for place, id_ in enumerate(row) if id_ == mask]
        best = logits[places].softmax(dim=-1).topk(number, dim=-1)
        found.append(
            [
                [(tokenizer.decode([id_]).strip(), share) for id_, share in zip(ids, shares, strict=True)]
                for ids, shares in zip(best.indices.tolist(), best.values.tolist(), strict=True)
            ]
        )
    return found


@torch.inference_mode()
def logits_of(model: PreTrainedModel, rows: Sequence[Sequence[int]]) -> Tensor:
    """Logits of a batch, (batch_size, num_labels) or (batch_size, seq_len or classifier_positions, num_labels)."""
    if not rows:
        return torch.empty(0)
    ids, mask = pad([torch.tensor(row, dtype=torch.long) for row in rows], model)
    with fast_matmul(model.device):
        logits: Tensor = model(input_ids=ids, attention_mask=mask).logits
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


LABELLING = {
    Task.SEQUENCE_CLASSIFICATION.value: label_texts,
    Task.TOKEN_CLASSIFICATION.value: label_words,
    Task.MASKED_LM.value: label_masks,
}
"""Functions that label a batch of texts, by the task of the model."""
