"""Native weights that are changed on their way in, which 16 bits may be too few for."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable

import torch

from ..errors import LostInputWarning
from ..symmetries.base import State


def changed_exactly(state: State, change: Callable[[State], State], name: str) -> State:
    """Change weights in float32 at least, and store them as they were where that loses nothing."""
    dtype = next(iter(state.values())).dtype
    wide = change({key: value.to(torch.promote_types(value.dtype, torch.float32)) for key, value in state.items()})
    narrow = {key: value.to(dtype) for key, value in wide.items()}
    if all(torch.equal(narrow[key].to(value.dtype), value) for key, value in wide.items()):
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
