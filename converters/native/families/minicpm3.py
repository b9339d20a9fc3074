"""MiniCPM3: latent attention without experts, and multipliers as Granite's, folded into weights that the zoo has."""

from __future__ import annotations

import math
from typing import Any

from zoo.models import ZooConfig

from ...symmetries.base import State
from ..base import native_format
from ..declared import Field, same, without
from .deepseek import LatentLike
from .granite import multiplied


def logit_scale(native: Any) -> float:
    """The factor on the logits; a tied embedding brings its own multiplier along."""
    scale: float = native.dim_model_base / native.hidden_size
    return scale / native.scale_emb if native.tie_word_embeddings else scale


def base_width(config: ZooConfig) -> int:
    """The width by which logits are scaled, a whole number."""
    return round(config.logit_scale * config.hidden_size)


def nearest_scale(config: ZooConfig) -> float:
    """The factor on the logits that a whole width gives: the given one but for rounding, or else none."""
    width = base_width(config)
    fits = width > 0 and math.isclose(width / config.hidden_size, config.logit_scale, rel_tol=1e-12)
    return config.logit_scale if fits else 1.0


@native_format
class MiniCPM3(LatentLike):
    """MiniCPM3 (OpenBMB 2024)."""

    name = "minicpm3"
    fields = {
        **without(LatentLike.fields, "position"),
        **same("mlp_bias"),
        "logit_scale": Field("dim_model_base", logit_scale, base_width, has=nearest_scale),
    }
    always = {**LatentLike.always, "position": "rotary"}
    follows = {
        **LatentLike.follows,
        "scale_emb": lambda config: 1.0,
        "scale_depth": lambda config: math.sqrt(config.num_hidden_layers),
    }

    def read_weights(self, native: Any, state: State, task: str) -> State:
        """Multiply the embeddings and what is written onto the residual stream. Arguments as in the base class."""
        state = super().read_weights(native, state, task)
        return multiplied(state, native, native.scale_emb, native.scale_depth / math.sqrt(native.num_hidden_layers))
