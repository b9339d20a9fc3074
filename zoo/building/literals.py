"""Names for editors and type checkers. Written by scripts/literals.py: do not edit.

A plugin's names are not here; any text is a valid name, so that a plugin's variant is one.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

# fmt: off

VariantName: TypeAlias = Literal[
    "albert-style", "alibi-decoder", "attention-is-all-you-need", "attention-residuals", "bert-style", "bloom-style",
    "d2l-style", "deepnorm", "deepseek-moe", "deepseek-v3-style", "diff-transformer", "explicando", "falcon-style",
    "gated-hyper-connections", "gemma2-style", "gemma3-style", "gpt-bert-style", "gpt-neox-style", "gpt-oss-style",
    "gpt2-style", "gptj-style", "hyper-connections", "kimi-linear-style", "lfm2-style", "llama-style", "ltg-bert-style",
    "manifold-hyper-connections", "marian-style", "mixtral-style", "modernbert-style", "multi-token-prediction",
    "nanochat-style", "ngpt", "nlpt-encoder", "normformer", "odom-style", "olmo2-style", "olmo3-style", "pegasus-style",
    "post-norm", "pre-norm", "qk-norm", "qwen3-moe-style", "qwen3-next-style", "qwen3-style", "res-post-norm", "rezero",
    "roberta-prelayernorm-style", "roformer-style", "sandwich-norm", "smollm3-style", "t5-style", "t5gemma-style",
    "universal", "value-residual", "vanilla",
]
"""The built-in variants."""

WeightsName: TypeAlias = Literal[
    "bert-style.roberta", "bert-style.uncased", "d2l-style.en-pt", "d2l-style.en-pt-faithful", "explicando.en-pt",
    "gpt-bert-style.books", "gpt2-style.char-en", "gpt2-style.openai", "gpt2-style.opt-125m", "llama-style.books",
    "llama-style.char-en", "marian-style.en-de", "modernbert-style.books", "nlpt-encoder.language",
    "nlpt-encoder.mlm-en", "odom-style.en-pt", "post-norm.bart", "post-norm.en-pt", "pre-norm.en-pt", "t5-style.en-pt",
    "t5-style.small", "t5gemma-style.books", "vanilla.en-pt", "vanilla.en-pt-faithful", "vanilla.language",
]
"""Weights that have a name."""

TaskName: TypeAlias = Literal[
    "feature-extraction", "masked-lm", "sequence-classification", "token-classification", "causal-lm", "seq2seq-lm",
]
"""Tasks of models."""
