"""EuroBERT: Llama's layers that see both directions."""

from __future__ import annotations

from typing import Any

from zoo.registry import Task

from ..base import native_format
from ..encoders import EncoderFormat
from .llama import Llama


@native_format
class EuroBert(EncoderFormat):
    """EuroBERT (Boizard et al. 2025)."""

    name = "eurobert"
    variant = "roberta-prelayernorm-style"
    fields = Llama.fields
    always = {**Llama.always, "norm_placement": "pre", "final_norm": True}
    body = Llama.body
    layer = Llama.layer
    heads = {
        "feature-extraction": {},
        "masked-lm": {"lm_head": "lm_head"},
        "token-classification": {"classifier": "classifier"},
    }
    mlm_transform = False

    def has(self, task: str) -> dict[str, Any]:
        """What settings the class has; one of them is for all biases. Arguments as in the base class."""
        own = {"lm_head_bias": lambda config: config.mlp_bias}
        return super().has(task) | (own if task == Task.MASKED_LM else {})
