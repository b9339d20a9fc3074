"""Accuracy on minimal pairs: how often the acceptable sentence gets the higher score."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from zoo.base.errors import ConfigError, DataError
from zoo.converters.weights import task_of
from zoo.data.tokenizers.encoding import to_ids
from zoo.registry import Task
from zoo.training.generation import load_checkpoint
from zoo.training.generation.checkpoint import TokenizerSource

from .suite import SUITES, MinimalPair, suite_folder

METHODS = ("log-probability", "pseudo-log-likelihood", "pseudo-log-likelihood-within-word")
"""How a sentence is scored: the sum of its tokens' log-probabilities, each given the tokens before it; each with that
token masked (Salazar et al. 2020); or each with the later tokens of its word masked too (Kauf and Ivanova 2023)."""

Query = tuple[int, list[int], list[int], list[int]]
"""A row for a model: number of the sentence, ids, positions that are predicted, and the ids there."""


def sentence_scores(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    sentences: Sequence[str],
    *,
    method: str | None = None,
    batch_tokens: int = 8192,
    advance: Callable[[int], object] = lambda done: None,
) -> list[float]:
    """Score sentences."""
    method, task = method_of(model, method), task_of(model)
    earlier = getattr(model.config, "masked_next_token", False)
    find = left_to_right if method == METHODS[0] else partial(masked, within_word=method == METHODS[2], earlier=earlier)
    queries = list(find(tokenizer, sentences))
    longest = max((len(ids) for _, ids, _, _ in queries), default=0)
    if (most := getattr(model.config, "max_position_embeddings", None)) is not None and longest > most:
        raise ConfigError(f"a sentence has {longest} tokens, and the model has {most} positions")
    totals = torch.zeros(len(sentences), dtype=torch.float64)
    source = encoder_inputs(tokenizer) if task == Task.SEQ2SEQ_LM else None
    for batch in batches(queries, batch_tokens):
        for number, score in zip((query[0] for query in batch), compute(model, batch, source), strict=True):
            totals[number] += score
        advance(len(batch))
    return totals.tolist()


def method_of(model: PreTrainedModel, method: str | None) -> str:
    """The method by which a model is scored."""
    valid = methods_for(task_of(model), method)
    return method or valid[0]


def methods_for(task: str, method: str | None = None) -> tuple[str, ...]:
    """The methods by which models for a task are scored; a given one must be among them."""
    valid = {Task.CAUSAL_LM: METHODS[:1], Task.SEQ2SEQ_LM: METHODS[:1], Task.MASKED_LM: METHODS[1:]}.get(Task(task))
    if valid is None:
        raise ConfigError(f"a model for {task} gives no probabilities of sentences; a language model does")
    if method is not None and method not in valid:
        raise ConfigError(f"method={method!r} was given; a model for {task} is scored by {' or '.join(valid)}")
    return valid


def left_to_right(tokenizer: PreTrainedTokenizerFast, sentences: Sequence[str]) -> Iterator[Query]:
    """A row for each sentence: each token given those before it, the first one given the token that begins a text."""
    first = begin(tokenizer)
    for number, ids in enumerate(to_ids(tokenizer, sentences, add_special_tokens=False)):
        ids = ids[1:] if ids[:1] == [first] else ids
        yield number, [first, *ids[:-1]], list(range(len(ids))), ids


def begin(tokenizer: PreTrainedTokenizerFast) -> int:
    """The token that begins a text."""
    first = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    if first is None:
        raise ConfigError("the tokenizer has neither bos_token nor eos_token, which a sentence's first token follows")
    return int(first)


def masked(
    tokenizer: PreTrainedTokenizerFast, sentences: Sequence[str], *, within_word: bool, earlier: bool = False
) -> Iterator[Query]:
    """A row for each token of each sentence, in which it is masked, and with it, if asked, the rest of its word.

    Args:
        earlier: Whether it is predicted one position earlier, by the token that begins a text if it is the first one.
    """
    mask = tokenizer.mask_token_id
    if mask is None:
        raise ConfigError("the tokenizer has no mask_token, which a masked language model is scored with")
    encoded = tokenizer(list(sentences), return_special_tokens_mask=True, return_attention_mask=False, verbose=False)
    for number, (ids, special) in enumerate(zip(encoded["input_ids"], encoded["special_tokens_mask"], strict=True)):
        words = encoded.word_ids(number)
        if earlier and not special[0]:
            ids, special, words = [begin(tokenizer), *ids], [1, *special], [None, *words]
        for place in (place for place, is_special in enumerate(special) if not is_special):
            hidden = {place}
            if within_word and words[place] is not None:
                hidden |= {later for later in range(place, len(ids)) if words[later] == words[place]}
            yield number, [mask if at in hidden else id_ for at, id_ in enumerate(ids)], [place - earlier], [ids[place]]


def encoder_inputs(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """What an encoder reads while its decoder is scored: a mask, if there is one, and the end of a text."""
    found = [id_ for id_ in (tokenizer.mask_token_id, tokenizer.eos_token_id) if id_ is not None]
    if not found:
        raise ConfigError("the tokenizer has neither mask_token nor eos_token, one of which the encoder reads")
    return found


def batches(queries: list[Query], batch_tokens: int) -> Iterator[list[Query]]:
    """Rows of one length at a time, so that none is padded."""
    ordered = sorted(queries, key=lambda query: len(query[1]))
    for length, group in groupby(ordered, key=lambda query: len(query[1])):
        rows = list(group)
        size = max(1, batch_tokens // max(length, 1))
        yield from (rows[start : start + size] for start in range(0, len(rows), size))


@torch.inference_mode()
def compute(model: PreTrainedModel, batch: list[Query], source: list[int] | None) -> Tensor:
    """Sum the log-probabilities of each row. *Shape:* (batch_size,)."""
    device = model.device
    ids = torch.tensor([ids for _, ids, _, _ in batch], device=device)
    targets = torch.tensor([targets for _, _, _, targets in batch], device=device)
    places = torch.tensor([places for _, _, places, _ in batch], device=device)
    given: dict[str, Any] = {"input_ids": ids}
    if source is not None:
        start = model.config.decoder_start_token_id
        begun = ids if start is None else torch.cat([torch.full_like(ids[:, :1], start), ids[:, 1:]], dim=1)
        given = {"input_ids": torch.tensor([source] * len(batch), device=device), "decoder_input_ids": begun}
    elif task_of(model) != Task.MASKED_LM:
        given["use_cache"] = False
    logits: Tensor = model(**given).logits
    picked = logits.gather(1, places[..., None].expand(-1, -1, logits.shape[-1])).float()
    losses = cross_entropy(picked.flatten(0, 1), targets.flatten(), reduction="none")
    return -losses.view(targets.shape).double().sum(dim=1).cpu()


@dataclass(frozen=True)
class PairScore:
    """A pair with the scores of its sentences, in nats."""

    pair: MinimalPair
    good: float
    bad: float

    @property
    def is_right(self) -> bool:
        """Whether the acceptable sentence has the higher score; equal scores are not right."""
        return self.good > self.bad


@dataclass(frozen=True)
class Accuracy:
    """A share of pairs, in percent, with its 95 % interval (Wilson 1927, over pairs)."""

    right: int
    pairs: int
    ties: int

    @property
    def value(self) -> float:
        """The share that is right, in percent."""
        return 100 * self.right / self.pairs

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's interval, in percent."""
        z = NormalDist().inv_cdf(0.975)
        share, spread = self.right / self.pairs, z * z / self.pairs
        middle = (share + spread / 2) / (1 + spread)
        half = z * math.sqrt(share * (1 - share) / self.pairs + spread / (4 * self.pairs)) / (1 + spread)
        return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)

    def to_dict(self) -> dict[str, Any]:
        """Value, interval and counts as plain data."""
        return {"value": self.value, "interval": list(self.interval), "pairs": self.pairs, "ties": self.ties}


@dataclass(frozen=True)
class SuiteResult:
    """A model's accuracy on a suite."""

    suite: str  # The suite's name
    method: str  # How sentences were scored
    scores: tuple[PairScore, ...] = field(repr=False)  # Every pair with its scores, in the suite's order

    def by(self, attribute: str) -> dict[str, Accuracy]:
        """Accuracy by "paradigm", "phenomenon" or "field", sorted by name."""
        groups: dict[str, list[PairScore]] = {}
        for score in self.scores:
            groups.setdefault(getattr(score.pair, attribute), []).append(score)
        return {name: accuracy(groups[name]) for name in sorted(groups)}

    @property
    def overall(self) -> float:
        """The mean of the paradigms' accuracies, in percent, as BLiMP is reported."""
        return fmean(found.value for found in self.by("paradigm").values())

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of `overall` over pairs, with the paradigms fixed.

        Normal, with two right and two wrong pairs added per share (Agresti and Coull 1998), as few may all be right.
        """
        found = self.by("paradigm").values()
        shares = [(one.right + 2) / (one.pairs + 4) for one in found]
        variances = [1e4 * share * (1 - share) / one.pairs for share, one in zip(shares, found, strict=True)]
        variance = sum(variances) / len(found) ** 2
        half = NormalDist().inv_cdf(0.975) * math.sqrt(variance)
        return max(0.0, self.overall - half), min(100.0, self.overall + half)

    def to_dict(self) -> dict[str, Any]:
        """All accuracies as plain data."""
        groups = {name: self.by(name) for name in ("field", "phenomenon", "paradigm")}
        written: Mapping[str, Any] = {
            name: {key: one.to_dict() for key, one in group.items()} for name, group in groups.items()
        }
        overall = {"value": self.overall, "interval": list(self.interval), "pairs": len(self.scores)}
        return {"suite": self.suite, "method": self.method, "overall": overall, **written}


def accuracy(scores: Iterable[PairScore]) -> Accuracy:
    """Count what is right."""
    found = list(scores)
    return Accuracy(sum(one.is_right for one in found), len(found), sum(one.good == one.bad for one in found))


def evaluate_suite(
    model: str | Path | PreTrainedModel,
    suite: str = "blimp",
    *,
    data: str | Path | None = None,
    tokenizer: TokenizerSource | None = None,
    method: str | None = None,
    limit: int | None = None,
    batch_tokens: int = 8192,
    advance: Callable[[int], object] = lambda done: None,
) -> SuiteResult:
    """Score a language model on a suite of minimal pairs.

    Args:
        model: A checkpoint's folder, the name of weights, a repository on the Hub, or a model.
        suite: A name in [`zoo.training.suites.SUITES`][].
        data: The folder with the suite's files; by default the one of its name in the folder `ZOO_DATA`.
        tokenizer: The tokenizer or the folder it is in, by default the one of the checkpoint.
        method: How sentences are scored: "log-probability" for causal models and encoder-decoders,
            "pseudo-log-likelihood" or "pseudo-log-likelihood-within-word" for masked ones.
        limit: Number of pairs per paradigm; None for all.
        batch_tokens: Number of tokens per batch.
        advance: Called with the number of rows that have been computed.
    """
    pairs = list(SUITES.get(suite).pairs(suite_folder(suite, data), limit))
    if not pairs:
        raise DataError(f"the files of the suite {suite!r} hold no pairs")
    loaded, tokenizers = load_checkpoint(model, tokenizer=tokenizer)
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.good, pair.bad)))
    used = method_of(loaded, method)
    found = sentence_scores(loaded, tokenizers.target, texts, method=used, batch_tokens=batch_tokens, advance=advance)
    score = dict(zip(texts, found, strict=True))
    return SuiteResult(suite, used, tuple(PairScore(pair, score[pair.good], score[pair.bad]) for pair in pairs))
