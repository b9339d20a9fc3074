"""Common settings, keys and helpers of most native formats."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from zoo.models import ZooConfig
from zoo.registry import Task

from ..errors import LostInputWarning
from ..symmetries.base import State

TABLE_POSITIONS = ("learned-unpadded", "learned")  # Position parts that are a table of trained vectors

COUNTS_TOKENS = "Padding before the tokens takes no positions in this class, in the original it does."
"""Note on a class with "learned-unpadded" positions, for a model with others."""

COUNTED_FROM = ", from which positions are counted"  # Why a class needs the id of padding


def without(table: Mapping[Any, Any], *names: Any) -> dict[Any, Any]:
    """A table, or weights by name, but for some of its lines."""
    return {name: native for name, native in table.items() if name not in names}


LABELS = ("id2label", "label2id", "problem_type")  # Settings of a classifier's labels


def labels(config: Any, task: str) -> dict[str, Any]:
    """The labels of a classifier, with equal names on both sides."""
    if task not in (Task.SEQUENCE_CLASSIFICATION, Task.TOKEN_CLASSIFICATION):
        return {}
    return {name: getattr(config, name) for name in LABELS}


def tokens(config: Any, stack: str) -> dict[str, Any]:
    """The special ids of a configuration, with equal names on both sides."""
    starts = ("decoder_start_token_id",) if stack == "encoder-decoder" else ()
    names = ("pad_token_id", "bos_token_id", "eos_token_id", *starts)
    return {name: getattr(config, name, None) for name in names}


def attention(heads: str, output: str, sublayer: str = "self_attn") -> dict[str, str]:
    """The keys of projections: `{q}` in those of heads is q, k and v, `{query}` is query, key and value."""
    words = {"q": "query", "k": "key", "v": "value"}
    keys = {f"{sublayer}.{p}_proj": heads.replace("{q}", p).replace("{query}", word) for p, word in words.items()}
    return {**keys, f"{sublayer}.o_proj": output}


def mlp(up: str, down: str) -> dict[str, str]:
    return {"mlp.up_proj": up, "mlp.down_proj": down}


def norms(attention: str, mlp: str, slot: str = "norm_in") -> dict[str, str]:
    """The keys of the norms of both sublayers, in one slot of their residual connections."""
    return {f"self_attn_residual.{slot}": attention, f"mlp_residual.{slot}": mlp}


def a_stack(config: Any) -> str:
    return f"{'a' if config.stack == 'decoder' else 'an'} {config.stack}"


def absorbs_bias(config: ZooConfig, classifier: Tensor) -> bool:
    """Whether the last norm is a layer norm, and the classifier's rows independent, so that it can absorb the bias."""
    ends_with_norm = config.final_norm or config.norm_placement == "post"
    independent = int(torch.linalg.matrix_rank(classifier.double())) == classifier.shape[0]
    return bool(config.norm == "layernorm" and ends_with_norm and independent)


def without_classifier_bias(state: State, norm_bias: str) -> State:
    """Move a classifier's bias into that of the norm before it: `W (h + d) = W h + b` for the shortest such d."""
    bias = state.get("score.bias")
    state = without(state, "score.bias")
    if bias is None or not bias.any():
        return state
    shift = torch.linalg.pinv(state["score.weight"].double()) @ bias.double()
    return {**state, norm_bias: state[norm_bias] + shift.to(state[norm_bias].dtype)}


def narrowed(state: State, dtype: torch.dtype, in_float32: Iterable[str] = ()) -> State:
    """Weights in a type where that loses nothing, else as they are; those with a part of `in_float32` in float32."""
    types = {name: torch.float32 if any(part in name for part in in_float32) else dtype for name in state}
    smaller = {name: tensor.to(types[name]) for name, tensor in state.items()}
    lossless = all(torch.equal(smaller[name].to(tensor.dtype), tensor) for name, tensor in state.items())
    return smaller if lossless else state


def changed_exactly(state: State, change: Callable[[State], State], name: str) -> State:
    """Change weights in float32 at least, and store them as they were where that loses nothing."""
    dtype = next(iter(state.values())).dtype
    wide = change({key: value.to(torch.promote_types(value.dtype, torch.float32)) for key, value in state.items()})
    if (narrow := narrowed(wide, dtype)) is not wide:
        return narrow
    warnings.warn(
        f"weights of this {name} model are stored in float32: what its class computes besides is multiplied into them, "
        f"and {str(dtype).removeprefix('torch.')} would lose some of it",
        LostInputWarning,
        stacklevel=2,
    )
    return wide


def fold_norm(state: State, norm: str, *readers: str) -> None:
    """Multiply a norm's weight and bias into what reads it, and leave the norm with ones and zeros."""
    weight, bias = state[f"{norm}.weight"], state.get(f"{norm}.bias")
    for reader in readers:
        matrix = state[f"{reader}.weight"]
        if bias is not None:
            state[f"{reader}.bias"] = state.get(f"{reader}.bias", 0.0) + matrix @ bias
        state[f"{reader}.weight"] = matrix * weight
    state[f"{norm}.weight"] = torch.ones_like(weight)
    if bias is not None:
        state[f"{norm}.bias"] = torch.zeros_like(bias)


def share_norms(
    state: State, layers: Iterable[str], norms: tuple[str, str], readers: tuple[str, str], name: str
) -> State:
    """Make one norm of the two that parallel sublayers have, by folding both into what reads them if they differ."""

    def shared(state: State) -> State:
        for layer in layers:
            kept, other = (f"{layer}{norm}" for norm in norms)
            if any(not torch.equal(state[f"{kept}.{part}"], state[f"{other}.{part}"]) for part in ("weight", "bias")):
                fold_norm(state, kept, f"{layer}{readers[0]}")
                fold_norm(state, other, f"{layer}{readers[1]}")
            del state[f"{other}.weight"], state[f"{other}.bias"]
        return state

    return changed_exactly(state, shared, name)
