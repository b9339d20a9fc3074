"""Changes of the weights of classes of transformers for llama.cpp's files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor

from zoo.models import LatentAttention, ZooConfig
from zoo.models.parts import option

from ..native.decoders import heads_by_group
from ..native.families.hybrids import mixed_and_gates
from ..symmetries.base import change
from ..transforms import pairs_to_halves

Weights: TypeAlias = dict[str, Tensor]
Change: TypeAlias = Callable[[Weights, ZooConfig], Weights]

GATE_AND_UP = ("gate_proj", "up_proj")

TRANSPOSED = r"\.(c_attn|c_proj|c_fc)\.weight$"  # Weights that GPT-2's class stores with inputs before outputs


def interleaved(state: Weights, config: ZooConfig) -> Weights:
    """Order queries and keys for a rotation of neighbours, which llama.cpp's Llama has."""

    def neighbours(heads: int) -> Callable[[Tensor], Tensor]:
        return lambda value: pairs_to_halves(heads, len(value) // heads).inverse(value)

    state = change(state, r"\.q_proj\.", neighbours(config.num_attention_heads))
    return change(state, r"\.k_proj\.", neighbours(config.num_key_value_heads))


def centred(state: Weights, config: ZooConfig) -> Weights:
    """Store weights of norms as they are, which Gemma's classes store as differences from one."""
    norms = r"(?<!\.linear_attn\.)norm\.weight$"  # that of the delta rule is stored as it is
    return change(state, norms, lambda weight: weight + 1)


def transposed(state: Weights, config: ZooConfig) -> Weights:
    """Store linear layers with outputs before inputs."""
    return change(state, TRANSPOSED, lambda weight: weight.T)


def grouped(module: str) -> Change:
    """Store all queries, then all keys, then all values, which the class stores by groups of heads."""

    def in_order(state: Weights, config: ZooConfig) -> Weights:
        groups = heads_by_group(config)
        return change(state, rf"\.{module}\.", lambda value: torch.cat(groups.forward((value,))))

    return in_order


def replaced(state: Weights, parts: Mapping[str, Callable[[Tensor], Weights]]) -> Weights:
    """Store some weights as others: functions make them of a weight, by endings of names."""
    found: Weights = {}
    for name, value in state.items():
        ending = next((ending for ending in parts if name.endswith(f".{ending}")), None)
        made = {"": value} if ending is None else parts[ending](value)
        found |= {name.removesuffix(ending or "") + new: part for new, part in made.items()}
    return found


def stacked_experts(state: Weights, config: ZooConfig) -> Weights:
    """Store the gates of all experts apart from what they gate."""
    return replaced(state, {"gate_up_proj": lambda both: dict(zip(GATE_AND_UP, both.chunk(2, dim=1), strict=True))})


def squeezed(state: Weights, config: ZooConfig) -> Weights:
    """Store convolutions of single channels as matrices, and a gate of one row as a vector."""
    state = change(state, [r"\.conv\.conv\.weight$", r"\.conv1d\.weight$"], lambda kernel: kernel.squeeze(1))
    return change(state, r"\.shared_expert_gate\.weight$", lambda row: row.squeeze(0))


def delta_projections(state: Weights, config: ZooConfig) -> Weights:
    """Store what the delta rule mixes apart from its gates, and how fast it forgets as a factor."""

    def apart(joined: Tensor) -> Weights:
        mixed, gates = mixed_and_gates(config).forward((joined,))
        return {"in_proj_qkv.weight": mixed, "in_proj_z.weight": gates}

    found = replaced(state, {"in_proj_qkvz.weight": apart, "dt_bias": lambda bias: {"dt_proj.bias": bias}})
    for name in [name for name in found if name.endswith(".A_log")]:
        found[f"blk.{name.split('.')[2]}.ssm_a"] = -found.pop(name).exp()  # as llama.cpp names it
    return found


def clamped_experts(state: Weights, config: ZooConfig) -> Weights:
    """Store gpt-oss's experts with inputs last, and their gates, which alternate with what they gate, apart."""

    def parts(kind: str, ending: str, *axes: int) -> dict[str, Callable[[Tensor], Weights]]:
        return {
            f"gate_up_proj{ending}": lambda both: {
                f"{part}.{kind}": both[..., place::2].transpose(*axes) for place, part in enumerate(GATE_AND_UP)
            },
            f"experts.down_proj{ending}": lambda one: {f"experts.down_proj.{kind}": one.transpose(*axes)},
        }

    return replaced(state, {**parts("weight", "", -1, -2), **parts("bias", "_bias", 0, 0)})


def unpacked_latent(state: Weights, config: ZooConfig) -> Weights:
    """Store by head what makes keys, transposed, and what makes values of latent vectors."""
    sizes = [option(config, LatentAttention, name) for name in ("qk_nope_head_dim", "v_head_dim")]

    def by_head(joined: Tensor) -> Weights:
        keys, values = joined.unflatten(0, (config.num_attention_heads, -1)).split(sizes, dim=1)
        return {"k_b_proj.weight": keys.transpose(1, 2), "v_b_proj.weight": values}

    biases = {"e_score_correction_bias": lambda bias: {"e_score_correction.bias": bias}}
    return replaced(state, {"kv_b_proj.weight": by_head, **biases})
