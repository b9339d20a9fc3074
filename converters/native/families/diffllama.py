"""DiffLlama: Llama whose attention is the difference of two."""

from __future__ import annotations

from ..base import native_format
from ..declared import without
from .llama import ATTENTION_BIAS, SAME_OUT_BIAS, LlamaLike

LAMBDAS = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")


@native_format
class DiffLlama(LlamaLike):
    """DiffLlama (Ye et al. 2024, as Llama's layers)."""

    name = "diffllama"
    variant = "diff-transformer"
    fields = {**without(LlamaLike.fields, "attention_dropout"), **ATTENTION_BIAS}
    always = {**LlamaLike.always, **SAME_OUT_BIAS, "attention": "differential", "attention_dropout": 0.0}
    parameters = {f"self_attn.{name}": f"self_attn.{name}" for name in LAMBDAS}
