"""What becomes of the weights of classes of transformers in llama.cpp's files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from zoo.models import ZooConfig

from ..transforms import pairs_to_halves, split_groups

Weights: TypeAlias = dict[str, Tensor]
Change: TypeAlias = Callable[[Weights, ZooConfig], Weights]

TRANSPOSED = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")
"""What GPT-2's class stores with inputs before outputs."""


def interleaved(state: Weights, config: ZooConfig) -> Weights:
    """Order queries and keys for a rotation of neighbours, which llama.cpp's Llama has."""

    def neighbours(value: Tensor, heads: int) -> Tensor:
        return pairs_to_halves(heads, len(value) // heads).inverse(value)

    heads = {".q_proj.": config.num_attention_heads, ".k_proj.": config.num_key_value_heads}
    found = dict(state)
    for part, count in heads.items():
        found |= {name: neighbours(value, count) for name, value in state.items() if part in name}
    return found


def centred(state: Weights, config: ZooConfig) -> Weights:
    """Store weights of norms as they are, which Gemma's classes store as differences from one."""
    return {name: value + 1 if name.endswith("norm.weight") else value for name, value in state.items()}


def transposed(state: Weights, config: ZooConfig) -> Weights:
    """Store linear layers with outputs before inputs."""
    return {name: value.T if name.endswith(TRANSPOSED) else value for name, value in state.items()}


def grouped(module: str) -> Change:
    """Store all queries, then all keys, then all values, which the class stores by groups of heads.

    Args:
        module: The projection's name.
    """

    def change(state: Weights, config: ZooConfig) -> Weights:
        groups = split_groups(config.num_key_value_heads, config.num_attention_heads // config.num_key_value_heads)
        return {
            name: torch.cat(groups.forward((value,))) if f".{module}." in name else value
            for name, value in state.items()
        }

    return change


def stacked_experts(state: Weights, config: ZooConfig) -> Weights:
    """Store the gates of all experts apart from what they gate."""
    found: Weights = {}
    for name, value in state.items():
        if name.endswith(".gate_up_proj"):
            gate, up = value.chunk(2, dim=1)
            found |= {name.replace("gate_up_proj", part): half for part, half in (("gate_proj", gate), ("up_proj", up))}
        else:
            found[name] = value
    return found
