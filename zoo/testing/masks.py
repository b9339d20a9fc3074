"""Checks of rows that hold other than one text from beginning to end: gaps in a mask, and packed documents."""

from __future__ import annotations

import torch
from torch import Tensor

from zoo.models.parts import POSITIONS

from .cases import check
from .comparing import assert_equal
from .subjects import Subject, token_ids

MASK = torch.tensor(
    [
        [1, 1, 1, 1, 0, 0, 1, 1, 0, 1, 0],
        [0, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1],
        [1, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    ],
    device="cpu",
)
"""Padding before, after and between the tokens of a row."""

TURNS = ((11,), (6, 5), (3, 1, 5, 1, 1))
"""How many positions are read at once."""

POSITIONS_OF_DOCUMENTS = torch.tensor(
    [[0, 1, 2, 3, 0, 0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [0, 1, 0, 1, 2, 0, 0, 1, 2, 0, 1]],
    device="cpu",
)
"""Positions of documents that are packed into rows."""


@check(stacks=("decoder",), once_per_stack=True)
def check_gaps_in_a_mask_change_nothing(subject: Subject) -> None:
    """Real tokens give what they give without the padding between them, read at once and in turns on a cache."""
    config = subject.config
    if config.sliding_window is not None or POSITIONS.get(config.position).has_bias:
        return  # both count places, padding included
    mask = MASK.to(subject.model.device)
    ids = token_ids(len(mask), mask.shape[1], config.vocab_size, seed=0)
    places = (mask.cumsum(1) - 1).clamp(min=0)
    alone = [hidden(subject, input_ids=row[real][None])[0] for row, real in zip(ids, mask.bool(), strict=True)]
    for uses_cache, turns in ((False, TURNS[0]), *((True, turns) for turns in TURNS)):
        read, cache, seen = [], None, 0
        for piece, positions in zip(ids.split(turns, dim=1), places.split(turns, dim=1), strict=True):
            seen += piece.shape[1]
            given = {"attention_mask": mask[:, :seen], "position_ids": positions, "past_key_values": cache}
            with torch.no_grad():
                outputs = subject.body(input_ids=piece, use_cache=uses_cache, **given)
            cache = outputs.past_key_values
            read.append(outputs.last_hidden_state)
        for row, (states, real) in enumerate(zip(torch.cat(read, dim=1), mask.bool(), strict=True)):
            what = f"row {row} with gaps, read in turns of {turns}{', cached' if uses_cache else ''} = without gaps"
            assert_equal(states[real], alone[row], what, rounding(alone[row]))


@check(stacks=("decoder",), once_per_stack=True)
def check_packed_documents_equal_separate_ones(subject: Subject) -> None:
    """Documents separated by position ids give what each gives alone, in training and by default."""
    places = POSITIONS_OF_DOCUMENTS.to(subject.model.device)
    ids = token_ids(len(places), places.shape[1], subject.config.vocab_size, seed=0)
    for use_cache in (False, None):
        packed = hidden(subject, input_ids=ids, position_ids=places, use_cache=use_cache)
        for row, positions in enumerate(places):
            lengths = (positions == 0).nonzero()[:, 0].tolist()
            lengths = [end - start for start, end in zip(lengths, [*lengths[1:], len(positions)], strict=True)]
            documents = zip(ids[row].split(lengths), packed[row].split(lengths), strict=True)
            for number, (document, states) in enumerate(documents):
                alone = hidden(subject, input_ids=document[None])[0]
                what = f"document {number} of row {row}, packed with use_cache={use_cache} = alone"
                assert_equal(states, alone, what, rounding(alone))


def hidden(subject: Subject, **inputs: Tensor | bool | None) -> Tensor:
    """The last hidden state. *Shape:* (batch_size, seq_len, hidden_size)."""
    with torch.no_grad():
        states: Tensor = subject.body(**inputs).last_hidden_state
    return states


def rounding(states: Tensor) -> float:
    """How far rounded angles of rotary positions and sums in another order may take states."""
    return 1e-9 * max(1.0, float(states.abs().max()))
