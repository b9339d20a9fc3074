"""Accuracy and F1, with confidence intervals from resampled examples."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .scores import Predictions, Score, perplexity, unknown_in

Counts = npt.NDArray[np.int64]  # Counts of each example. *Shape:* (num_examples, ...)

LEVEL = 95
SEED = 12345  # As sacreBLEU's
RESAMPLED_AT_ONCE = 1 << 22  # Numbers that are held in memory at a time


def resampled(
    name: str,
    counts: Counts,
    value_of: Callable[[npt.NDArray[Any]], npt.NDArray[Any]],
    signature: str,
    *,
    n_bootstrap: int = 1,
) -> Score:
    """A score from 0 to 100 with its bootstrap interval (Efron 1979); `value_of` makes scores of sums of counts."""
    value = float(value_of(counts.sum(axis=0, keepdims=True))[0])
    interval = None
    if n_bootstrap > 1:
        signature += f"|bs:{n_bootstrap}|seed:{SEED}"
        generator, number, values = np.random.default_rng(SEED), len(counts), []
        flat = counts.reshape(number, -1).astype(np.float64)
        together = max(1, min(n_bootstrap, RESAMPLED_AT_ONCE // number))
        for start in range(0, n_bootstrap, together):
            # How often each example is drawn is all that the sums depend on.
            drawn = generator.multinomial(number, np.full(number, 1 / number), size=min(together, n_bootstrap - start))
            values.append(value_of((drawn @ flat).reshape(-1, *counts.shape[1:])))
        low, high = np.percentile(np.concatenate(values), [50 - LEVEL / 2, 50 + LEVEL / 2])
        interval = (round(100 * float(low), 4), round(100 * float(high), 4))
    return Score(name, round(100 * value, 4), signature, interval)


def ratio(sums: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Share of right answers: (num_samples, 2) -> (num_samples,)."""
    return sums[:, 0] / np.maximum(sums[:, 1], 1)


def f1(sums: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """F1 (van Rijsbergen 1979) of sums of right, predicted and true labels, (..., 3); 0 over nothing."""
    right, predicted, true = sums[..., 0], sums[..., 1], sums[..., 2]
    return 2 * right / np.maximum(predicted + true, 1)


def macro_f1(sums: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Mean F1 of the labels that occur or were predicted: (num_samples, num_labels, 3) -> (num_samples,)."""
    counted = sums[..., 1:].sum(axis=-1) > 0
    return (f1(sums) * counted).sum(axis=-1) / np.maximum(counted.sum(axis=-1), 1)


def accuracy_score(answers: Sequence[Sequence[int]], labels: Sequence[Sequence[int]], *, n_bootstrap: int = 1) -> Score:
    counts = np.array(
        [(np.equal(ours, theirs).sum(), len(theirs)) for ours, theirs in zip(answers, labels, strict=True)]
    )
    return resampled("Accuracy", counts, ratio, f"labels:{counts[:, 1].sum()}", n_bootstrap=n_bootstrap)


def scores_of_tokens(predictions: Predictions, signature: str, *, n_bootstrap: int) -> dict[str, Score]:
    """Perplexity of the predicted tokens, and the share of them that is guessed."""
    return {
        "perplexity": perplexity(predictions.loss, signature + unknown_in(predictions)),
        "accuracy": accuracy_score(predictions.ids, predictions.labels, n_bootstrap=n_bootstrap),
    }


def macro_f1_score(
    answers: Sequence[Sequence[int]], labels: Sequence[Sequence[int]], num_labels: int, *, n_bootstrap: int = 1
) -> Score:
    counts = np.zeros((len(labels), num_labels, 3), np.int64)
    for row, ours, theirs in zip(counts, answers, labels, strict=True):
        for answer, label in zip(ours, theirs, strict=True):
            row[answer, 1] += 1
            row[label, 2] += 1
            row[label, 0] += answer == label
    signature = f"labels:{num_labels}|average:macro"
    return resampled("F1", counts, macro_f1, signature, n_bootstrap=n_bootstrap)


def entity_f1_score(answers: Sequence[Sequence[str]], tags: Sequence[Sequence[str]], *, n_bootstrap: int = 1) -> Score:
    """Compute the F1 of entities: spans of tokens with their type, which must agree exactly (CoNLL-2003)."""
    rows = []
    for ours, theirs in zip(answers, tags, strict=True):
        predicted, true = entities(ours), entities(theirs)
        rows.append((len(predicted & true), len(predicted), len(true)))
    return resampled("F1", np.array(rows), f1, "entities|scheme:IOB|average:micro", n_bootstrap=n_bootstrap)


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Find the entities that tags mark: B-X begins one, I-X continues it or begins one, as conlleval reads them."""
    found = set()
    kind, begin = "", 0
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, name = tag.partition("-")
        continues = prefix == "I" and name == kind
        if kind and not continues:
            found.add((kind, begin, place))
            kind = ""
        if prefix in ("B", "I") and name and not continues:
            kind, begin = name, place
    return found


def has_entities(labels: Sequence[str]) -> bool:
    """Whether labels mark entities by B- and I-."""
    prefixed = [label for label in labels if label[:2] in ("B-", "I-")]
    return bool(prefixed) and len(prefixed) >= len([label for label in labels if label != "O"])


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's rank correlation (1904); None where all values of a side are equal."""
    first, second = mean_ranks(one), mean_ranks(other)
    return float(np.corrcoef(first, second)[0, 1]) if np.ptp(first) and np.ptp(second) else None


def mean_ranks(values: Sequence[float]) -> npt.NDArray[np.float64]:
    """The rank of each value; ties have their mean rank."""
    _, places, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places], dtype=np.float64)
