"""Predictions of a model, and their scores."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU


class Outputs(StrEnum):
    """How a task's outputs come about."""

    GENERATED = "generated"
    """The model writes them: `generate`."""
    PREDICTED = "predicted"
    """At each label, the id with the highest logit."""
    NONE = "none"
    """No scores; the loss is the only score."""


@dataclass(frozen=True)
class Predictions:
    """Predictions of a model.

    Attributes:
        loss: Cross-entropy per label, in nats.
        num_labels: Number of labels that the loss is the mean over, padding excluded.
        unknown: How many of them are the tokenizer's id for what it does not know; of outputs that are generated, 0.
        outputs: A text an example; empty where a task has no outputs.
        ids: Of predicted outputs, the ids at each example's labels. *Shape:* (num_labels_of_example,)
        labels: The ids that would have been right, likewise.
        probabilities: Of predicted outputs, the probability of each id. *Shape:* as ids
        text: Raw texts as the tokenizer gives them back, all in a row; None of other examples.
    """

    loss: float
    num_labels: int
    unknown: int = 0
    outputs: Sequence[str] = ()
    ids: Sequence[Any] = field(default=(), repr=False)
    labels: Sequence[Any] = field(default=(), repr=False)
    probabilities: Sequence[Any] = field(default=(), repr=False)
    text: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Score:
    """A score of a whole set of outputs.

    Attributes:
        name: Its name in tables.
        value: The score.
        signature: How it was computed, in sacreBLEU's words.
        interval: Its 95 % confidence interval, where the examples were resampled.
        higher_is_better: Whether a higher value is the better one.
    """

    name: str
    value: float
    signature: str
    interval: tuple[float, float] | None = None
    higher_is_better: bool = True


HAN = re.compile("[\u3400-\u9fff]")
OTHERS_WITHOUT_BLANKS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff]")  # Thai to Khmer, and kana


def bleu_tokenizer(references: Sequence[str]) -> str:
    """The tokenizer of sacreBLEU: its default, or another where most letters are of scripts without blanks."""
    text = "".join(references)
    han, others = (len(script.findall(text)) for script in (HAN, OTHERS_WITHOUT_BLANKS))
    if 2 * (han + others) <= sum(map(str.isalpha, text)):
        return "13a"
    return "zh" if han > 4 * others else "char"


def bleu_metric(references: Sequence[str]) -> BLEU:
    """BLEU with the tokenizer for references, and `effective_order` where none of them has 4 words."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(tokenize=bleu_tokenizer(references))
    metric.effective_order = all(len(metric.tokenizer(one).split()) < metric.max_ngram_order for one in references)
    return metric


def translation_scores(
    hypotheses: Sequence[str], references: Sequence[str], *, n_bootstrap: int = 1
) -> dict[str, Score]:
    """Compare translations with references.

    Args:
        hypotheses: Outputs of a model.
        references: Correct outputs, in the same order.
        n_bootstrap: How often to resample the pairs for a confidence interval (Koehn 2004); 1 for none.

    Returns:
        BLEU (Papineni et al. 2002; Post 2018) and chrF (Popović 2015), each from 0 to 100. BLEU's words are those of
        sacreBLEU's tokenizer 13a, of Chinese zh, and of Japanese, Thai, Lao, Burmese and Khmer single characters. Where
        no reference has four of them, it counts shorter runs alone (eff:yes in its signature), else it would be 0.
    """
    from sacrebleu.metrics import CHRF

    class Chrf(CHRF):
        """chrF as a float: sacreBLEU takes no mean of floats and NumPy's, which it gives where nothing matches."""

        def _compute_score_from_stats(self, stats: list[int]) -> Any:
            found = super()._compute_score_from_stats(stats)
            found.score = float(found.score)
            return found

    scores = {}
    for name, metric in (("bleu", bleu_metric(references)), ("chrf", Chrf())):
        result = metric.corpus_score(list(hypotheses), [list(references)], n_bootstrap=n_bootstrap)
        signature = str(metric.get_signature())
        interval = None
        if n_bootstrap > 1:
            written = json.loads(result.format(width=4, signature=signature, is_json=True))
            mean, margin = (written.get(f"confidence_{part}", 0.0) for part in ("mean", "var"))
            interval = (round(mean - margin, 4), round(mean + margin, 4))
        scores[name] = Score(result.name.replace("chrF2", "chrF"), round(result.score, 4), signature, interval)
    return scores


def unknown_in(predictions: Predictions) -> str:
    """The part of a signature that counts unknown tokens; a model predicts all of them as the same token."""
    return f"|unknown:{predictions.unknown}" if predictions.unknown else ""


def perplexity_of(loss: float) -> float:
    """E to the power of a loss, infinite above 1e12."""
    return math.inf if loss >= math.log(1e12) else math.exp(loss)


def perplexity(loss: float, signature: str) -> Score:
    return Score("Perplexity", round(perplexity_of(loss), 4), signature, higher_is_better=False)
