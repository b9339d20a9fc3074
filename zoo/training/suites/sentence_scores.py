"""Log-probabilities of whole sentences, by causal, masked and encoder-decoder models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from zoo.base.errors import ConfigError
from zoo.converters.weights import task_of
from zoo.data.tokenizers.encoding import to_ids
from zoo.registry import Task

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
    find = left_to_right if method == METHODS[0] else partial(masked, within_word=method == METHODS[2])
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
    task = task_of(model)
    valid = {Task.CAUSAL_LM: METHODS[:1], Task.SEQ2SEQ_LM: METHODS[:1], Task.MASKED_LM: METHODS[1:]}.get(Task(task))
    if valid is None:
        raise ConfigError(f"a model for {task} gives no probabilities of sentences; a language model does")
    if method is not None and method not in valid:
        raise ConfigError(f"method={method!r} was given; a model for {task} is scored by {' or '.join(valid)}")
    return method or valid[0]


def left_to_right(tokenizer: PreTrainedTokenizerFast, sentences: Sequence[str]) -> Iterator[Query]:
    """A row for each sentence: each token given those before it, the first one given the token that begins a text."""
    first = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    if first is None:
        raise ConfigError("the tokenizer has neither bos_token nor eos_token, which a sentence's first token follows")
    for number, ids in enumerate(to_ids(tokenizer, sentences, add_special_tokens=False)):
        ids = ids[1:] if ids[:1] == [first] else ids
        yield number, [first, *ids[:-1]], list(range(len(ids))), ids


def masked(tokenizer: PreTrainedTokenizerFast, sentences: Sequence[str], *, within_word: bool) -> Iterator[Query]:
    """A row for each token of each sentence, in which it is masked, and with it, if asked, the rest of its word."""
    mask = tokenizer.mask_token_id
    if mask is None:
        raise ConfigError("the tokenizer has no mask_token, which a masked language model is scored with")
    encoded = tokenizer(list(sentences), return_special_tokens_mask=True, return_attention_mask=False, verbose=False)
    for number, (ids, special) in enumerate(zip(encoded["input_ids"], encoded["special_tokens_mask"], strict=True)):
        words = encoded.word_ids(number)
        for place in (place for place, is_special in enumerate(special) if not is_special):
            hidden = {place}
            if within_word and words[place] is not None:
                hidden |= {later for later in range(place, len(ids)) if words[later] == words[place]}
            yield number, [mask if at in hidden else id_ for at, id_ in enumerate(ids)], [place], [ids[place]]


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
