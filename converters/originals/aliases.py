"""One tensor under several keys."""

from __future__ import annotations

import torch

from ..transforms import Tensors, Transform, join


def one_of(aliases: int) -> Transform:
    """Take the one tensor that several keys hold."""
    return Transform("unite", agree, lambda tensors: tensors * aliases)


def agree(tensors: Tensors) -> Tensors:
    """Require tensors to be one."""
    first, *others = tensors
    for other in others:
        if not torch.allclose(first, other, rtol=0, atol=0, equal_nan=True):
            raise ValueError("these keys are names of one tensor, but their values differ")
    return (first,)


def join_aliases(heads: int, aliases: int) -> Transform:
    """Concatenate heads that several keys hold each."""
    joined, one = join(heads), one_of(aliases)
    return Transform(
        "join",
        lambda tensors: joined.forward(
            tuple(one.forward(tensors[head * aliases : (head + 1) * aliases])[0] for head in range(heads))
        ),
        lambda tensors: tuple(alias for head in joined.backward(tensors) for alias in one.backward((head,))),
    )
