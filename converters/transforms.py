"""Exact changes of weights, each with its inverse.

A [`Transform`][] maps some tensors to others and knows the way back. Key maps use them in their rows, and
[`zoo.converters.symmetries`][] builds on them. Nothing here knows a model, and nothing changes what it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]  # Types that a transform takes and returns


@dataclass(frozen=True)
class Transform:
    """A change of tensors that can be undone."""

    name: str  # A verb for messages: "cannot transpose x: ..."
    forward: Callable[[Tensors], Tensors]
    backward: Callable[[Tensors], Tensors]

    @property
    def inverse(self) -> Transform:
        """The way back as a transform."""
        return Transform(f"undo {self.name}", self.backward, self.forward)

    def then(self, other: Transform) -> Transform:
        """This change and another one after it, by whose name both go."""
        return Transform(
            other.name,
            lambda tensors: other.forward(self.forward(tensors)),
            lambda tensors: self.backward(other.backward(tensors)),
        )

    def __call__(self, tensor: Tensor) -> Tensor:
        """Apply to a single tensor where a single one results."""
        (changed,) = self.forward((tensor,))
        return changed


def each(name: str, forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor], Tensor]) -> Transform:
    """Make a transform of a change that every tensor undergoes by itself."""
    return Transform(name, lambda tensors: tuple(map(forward, tensors)), lambda tensors: tuple(map(backward, tensors)))


SAME = each("keep", lambda tensor: tensor, lambda tensor: tensor)  # Leaves tensors as they are


def transposed(tensor: Tensor) -> Tensor:
    return tensor.transpose(-1, -2).contiguous()


TRANSPOSE = each("transpose", transposed, transposed)
"""Between a linear layer's weight, *Shape:* (..., out, in), and that of GPT-2's Conv1D, *Shape:* (..., in, out)."""

LEADING_AXIS = each("drop the leading axis of", lambda tensor: tensor.squeeze(0), lambda tensor: tensor[None])
"""From final_logits_bias, *Shape:* (1, vocab_size), to an output bias, *Shape:* (vocab_size,)."""


def join(parts: int) -> Transform:
    """Stack the rows of several equally large tensors."""
    cut = split(parts)
    return Transform("join", cut.backward, cut.forward)


def split(parts: int) -> Transform:
    """Cut the rows of one tensor into equal parts."""
    return split_rows((1,) * parts)


def permute(order: Tensor, dim: int = -1) -> Transform:
    """Transform: reorder one dimension by a permutation, (width,)."""
    return each("permute", lambda one: one.index_select(dim, order), lambda one: one.index_select(dim, order.argsort()))


def evens_then_odds(width: int) -> Tensor:
    """Indices 0, 2, 4, ..., 1, 3, 5, ...: alternating sines and cosines to all sines before all cosines."""
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def pairs_to_halves(num_heads: int, rotary_dim: int) -> Transform:
    """Transform: leading `rotary_dim` columns of heads from neighbouring pairs (GPT-J) to half-split ones (Llama)."""
    order = evens_then_odds(rotary_dim)

    def reorder(tensor: Tensor, order: Tensor) -> Tensor:
        heads = tensor.unflatten(0, (num_heads, -1))
        kept = torch.arange(rotary_dim, heads.shape[1])
        return heads[:, torch.cat([order, kept])].flatten(0, 1)

    return each("un-interleave", lambda tensor: reorder(tensor, order), lambda tensor: reorder(tensor, order.argsort()))


def skip_rows(rows: int) -> Transform:
    """Drop the first rows of a table, which its class never reads."""
    return each(
        "skip the first rows of",
        lambda tensor: tensor[rows:].clone(),
        lambda tensor: torch.cat([tensor.new_zeros(rows, *tensor.shape[1:]), tensor]),
    )


def zero_bias() -> Transform:
    """Give a norm the bias that it lacks."""

    def remove(tensors: Tensors) -> Tensors:
        weight, bias = tensors
        if not bias.is_meta and bias.any():
            raise ValueError("the layer has a bias, which the other side has no place for")
        return (weight,)

    return Transform("add a bias to", lambda tensors: (tensors[0], torch.zeros_like(tensors[0])), remove)


def split_rows(sizes: tuple[int, ...], groups: int = 1) -> Transform:
    """Cut the rows of one tensor into parts with these shares of every group of rows, as of joined projections."""

    def cut(tensors: Tensors) -> Tensors:
        if tensors[0].shape[0] % (groups * sum(sizes)):
            raise ValueError(f"{tensors[0].shape[0]} rows are not {groups * sum(sizes)} equal parts")
        by_group = tensors[0].unflatten(0, (groups, sum(sizes), -1))
        return tuple(part.flatten(0, 2).clone() for part in by_group.split(sizes, dim=1))

    def join_again(tensors: Tensors) -> Tensors:
        parts = [tensor.unflatten(0, (groups, size, -1)) for tensor, size in zip(tensors, sizes, strict=True)]
        return (torch.cat(parts, dim=1).flatten(0, 2),)

    return Transform("split", cut, join_again)
