"""Log-probabilities of texts, or of their ends, by language models of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from zoo.base.errors import ConfigError, InputError
from zoo.converters.weights import task_of
from zoo.data.tokenizers.encoding import encode, to_ids
from zoo.fast.matmul import fast_matmul
from zoo.models import ZooForCausalLM, ZooForMaskedLM
from zoo.registry import Task

from .suite import Option

METHODS = (
    "log-probability",
    "pseudo-log-likelihood",
    "pseudo-log-likelihood-within-word",
    "log-probability-after-mask",
)
"""How a text is scored: the sum of its tokens' log-probabilities, each given the tokens before it; each with that
token masked (Salazar et al. 2020); each with the later tokens of its word masked too (Kauf and Ivanova 2023); or, by an
encoder-decoder, the first of these after `bos_token` and `mask_token`."""

VALID = {
    Task.CAUSAL_LM: METHODS[:1],
    Task.MASKED_LM: METHODS[1:3],
    Task.SEQ2SEQ_LM: (METHODS[0], METHODS[3], METHODS[1]),
}
"""The methods for models of a task, the default first."""


class Query(NamedTuple):
    """A row for a model."""

    number: int  # Number of the text
    ids: list[int]
    places: list[int]  # Positions at which tokens are predicted
    targets: list[int]  # The tokens there
    source: Sequence[int] = ()  # Input of the encoder; `ids` are then the decoder's


def option_scores(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    options: Sequence[Option],
    *,
    method: str | None = None,
    batch_tokens: int = 8192,
    advance: Callable[[int], object] = lambda done: None,
) -> list[float]:
    """Score the completions of texts; a token belongs to one if it ends after its first character."""
    rows = rows_for(model, method_of(model, method))(tokenizer, options)
    queries = [query for query in rows if query.places]
    if without := {*range(len(options))} - {query.number for query in queries}:  # which would be of probability 1
        raise InputError(f"the tokenizer makes no tokens of {options[min(without)].completion!r}, which gives no score")
    longest = max((len(ids) for query in queries for ids in (query.ids, query.source)), default=0)
    if (most := getattr(model.config, "max_position_embeddings", None)) is not None and longest > most:
        raise ConfigError(f"a text has {longest} tokens, and the model has {most} positions")
    totals = torch.zeros(len(options), dtype=torch.float64)
    for batch in batches(queries, batch_tokens):
        for query, score in zip(batch, compute(model, batch), strict=True):
            totals[query.number] += score
        advance(len(batch))
    if spoiled := int(totals.isnan().sum()):
        raise InputError(f"the model's scores of {spoiled:,} of {len(totals):,} texts are no numbers (NaN)")
    return totals.tolist()


def method_of(model: PreTrainedModel, method: str | None) -> str:
    valid = methods_for(task_of(model), method)
    return method or valid[0]


def methods_for(task: str, method: str | None = None) -> tuple[str, ...]:
    """The methods by which models for a task are scored; a given one must be among them."""
    valid = VALID.get(Task(task))
    if valid is None:
        raise ConfigError(f"a model for {task} gives no probabilities of sentences; a language model does")
    if method is not None and method not in valid:
        raise ConfigError(f"method={method!r} was given; a model for {task} is scored by {' or '.join(valid)}")
    return valid


def rows_for(
    model: PreTrainedModel, method: str
) -> Callable[[PreTrainedTokenizerFast, Sequence[Option]], Iterator[Query]]:
    if task_of(model) == Task.SEQ2SEQ_LM:
        start = model.config.decoder_start_token_id if method == METHODS[0] else None
        return filled if method == METHODS[1] else partial(completed, start=start, after_mask=method == METHODS[3])
    if method == METHODS[0]:
        return left_to_right
    earlier = getattr(model.config, "masked_next_token", False)
    return partial(masked, within_word=method == METHODS[2], earlier=earlier)


def left_to_right(tokenizer: PreTrainedTokenizerFast, options: Sequence[Option]) -> Iterator[Query]:
    """A row for each text: each token given those before it, the first one given the token that begins a text."""
    first = begin(tokenizer)
    texts = [option.text for option in options]
    encoded = encode(tokenizer, texts, add_special_tokens=False, return_offsets_mapping=True)
    for number, (ids, offsets) in enumerate(zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)):
        skipped = ids[:1] == [first]
        ids, offsets = ids[skipped:], offsets[skipped:]
        scored = [place for place, (_, end) in enumerate(offsets) if end > options[number].start]
        yield Query(number, [first, *ids[:-1]], scored, [ids[place] for place in scored])


def begin(tokenizer: PreTrainedTokenizerFast) -> int:
    first = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    if first is None:
        raise ConfigError("the tokenizer has neither bos_token nor eos_token, which a sentence's first token follows")
    return int(first)


def mask_of(tokenizer: PreTrainedTokenizerFast) -> int:
    if tokenizer.mask_token_id is None:
        raise ConfigError("the tokenizer has no mask_token, which a masked language model is scored with")
    return int(tokenizer.mask_token_id)


def masked(
    tokenizer: PreTrainedTokenizerFast, options: Sequence[Option], *, within_word: bool = False, earlier: bool = False
) -> Iterator[Query]:
    """A row for each masked token of each completion; `earlier` models predict it one position before."""
    mask = mask_of(tokenizer)
    texts = [option.text for option in options]
    encoded = encode(tokenizer, texts, return_special_tokens_mask=True, return_offsets_mapping=True)
    for number, option in enumerate(options):
        ids, special = encoded["input_ids"][number], encoded["special_tokens_mask"][number]
        words, ends = encoded.word_ids(number), [end for _, end in encoded["offset_mapping"][number]]
        if earlier and not special[0]:
            ids, special, words, ends = [begin(tokenizer), *ids], [1, *special], [None, *words], [0, *ends]
        for place, end in enumerate(ends):
            if special[place] or end <= option.start:
                continue
            hidden = {place}
            if within_word and words[place] is not None:
                hidden |= {later for later in range(place, len(ids)) if words[later] == words[place]}
            row = [mask if at in hidden else id_ for at, id_ in enumerate(ids)]
            yield Query(number, row, [place - earlier], [ids[place]])


def completed(
    tokenizer: PreTrainedTokenizerFast, options: Sequence[Option], *, start: int | None, after_mask: bool
) -> Iterator[Query]:
    """A row a text: the encoder reads what is before the completion and a mask; the decoder goes on from `start`."""
    first = begin(tokenizer) if start is None else start
    before = [tokenizer.cls_token_id] if tokenizer.cls_token_id is not None else []
    after = [id_ for id_ in (tokenizer.mask_token_id, tokenizer.eos_token_id) if id_ is not None]
    if not after:
        raise ConfigError("the tokenizer has neither mask_token nor eos_token; the encoder reads one of them")
    begun = [first, mask_of(tokenizer)] if after_mask else [first]
    sources = to_ids(tokenizer, [option.prefix for option in options], add_special_tokens=False)
    targets = to_ids(tokenizer, [option.completion for option in options], add_special_tokens=False)
    for number, (source, ids) in enumerate(zip(sources, targets, strict=True)):
        places = list(range(len(begun) - 1, len(begun) - 1 + len(ids)))
        yield Query(number, [*begun, *ids[:-1]], places, ids, [*before, *source, *after])


def filled(tokenizer: PreTrainedTokenizerFast, options: Sequence[Option]) -> Iterator[Query]:
    """A row for each token of each completion: the encoder reads the text without it, and the decoder a mask."""
    begun = [begin(tokenizer), mask_of(tokenizer)]
    for query in masked(tokenizer, options):
        yield Query(query.number, begun, [1], query.targets, query.ids)


def batches(queries: list[Query], batch_tokens: int) -> Iterator[list[Query]]:
    """Rows of one length and one number of predicted tokens at a time, so that none is padded."""

    def shape(query: Query) -> tuple[int, int, int]:
        return len(query.ids), len(query.source), len(query.places)

    for lengths, group in groupby(sorted(queries, key=shape), key=shape):
        rows = list(group)
        size = max(1, batch_tokens // max(*lengths[:2], 1))
        yield from (rows[start : start + size] for start in range(0, len(rows), size))


@torch.inference_mode()
def compute(model: PreTrainedModel, batch: list[Query]) -> Tensor:
    """Sum the log-probabilities of each row. *Shape:* (batch_size,)."""
    ids, places, targets, sources = (
        torch.tensor([query[part] for query in batch], device=model.device) for part in (1, 2, 3, 4)
    )
    given: dict[str, Any] = {"input_ids": ids}
    if sources.numel():
        given = {"input_ids": sources, "decoder_input_ids": ids}
    elif task_of(model) != Task.MASKED_LM:
        given["use_cache"] = False
    keeps = {"logits_to_keep": places} if isinstance(model, (ZooForCausalLM, ZooForMaskedLM)) else {}
    with fast_matmul(model.device):
        logits: Tensor = model(**given, **keeps).logits
    if not keeps:
        logits = logits.gather(1, places[..., None].expand(-1, -1, logits.shape[-1]))
    losses = cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none")
    return -losses.view(targets.shape).double().sum(dim=1).cpu()
