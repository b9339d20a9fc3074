"""Changes of the weights of classes of transformers for llama.cpp's files."""

from __future__ import annotations

from collections.abc import Callable
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

TRANSPOSED = r"\.(c_attn|c_proj|c_fc)\.weight$"  # Weights that GPT-2's class stores with inputs before outputs


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


def squeezed(state: Weights, config: ZooConfig) -> Weights:
    """Store convolutions of single channels as matrices, and a gate of one row as a vector."""
    state = change(state, [r"\.conv\.conv\.weight$", r"\.conv1d\.weight$"], lambda kernel: kernel.squeeze(1))
    return change(state, r"\.shared_expert_gate\.weight$", lambda row: row.squeeze(0))


def delta_projections(state: Weights, config: ZooConfig) -> Weights:
    """Store what the delta rule mixes apart from its gates, and how fast it forgets as a factor."""
    found: Weights = {}
    for name, value in state.items():
        module = name.rpartition("linear_attn.")[0] + "linear_attn."
        if name.endswith(".in_proj_qkvz.weight"):
            mixed, gates = mixed_and_gates(config).forward((value,))
            found |= {f"{module}in_proj_qkv.weight": mixed, f"{module}in_proj_z.weight": gates}
        elif name.endswith(".A_log"):
            found[f"blk.{name.split('.')[2]}.ssm_a"] = -value.exp()  # as llama.cpp names it
        elif name.endswith(".dt_bias"):
            found[f"{module}dt_proj.bias"] = value
        else:
            found[name] = value
    return found


def clamped_experts(state: Weights, config: ZooConfig) -> Weights:
    """Store gpt-oss's experts with inputs last, and their gates, which alternate with what they gate, apart."""
    found: Weights = {}
    for name, value in state.items():
        kind = "bias" if name.endswith("_bias") else "weight"
        if ".experts." not in name:
            found[name] = value
            continue
        place, _, projection = name.removesuffix("_bias").rpartition(".")
        parts = (
            {"gate_proj": value[..., ::2], "up_proj": value[..., 1::2]}
            if "gate_up" in projection
            else {projection: value}
        )
        for part, tensor in parts.items():
            found[f"{place}.{part}.{kind}"] = tensor.transpose(-1, -2) if kind == "weight" else tensor
    return found


def unpacked_latent(state: Weights, config: ZooConfig) -> Weights:
    """Store by head what makes keys, transposed, and what makes values of latent vectors."""
    sizes = [option(config, LatentAttention, name) for name in ("qk_nope_head_dim", "v_head_dim")]
    found: Weights = {}
    for name, value in state.items():
        if name.endswith(".kv_b_proj.weight"):
            keys, values = value.unflatten(0, (config.num_attention_heads, -1)).split(sizes, dim=1)
            found[name.replace("kv_b_proj", "k_b_proj")] = keys.transpose(1, 2)
            found[name.replace("kv_b_proj", "v_b_proj")] = values
        else:
            found[name.replace("e_score_correction_bias", "e_score_correction.bias")] = value
    return found
