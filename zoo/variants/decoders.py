"""Decoders: one language model a published architecture."""

from functools import partial
from typing import Any

from zoo.registry import register

LLAMA_LIKE: dict[str, Any] = {
    "norm": "rmsnorm",
    "position": "rotary",
    "attention_bias": False,
    "mlp_bias": False,
    "feed_forward": "gated",
    "hidden_act": "silu",
    "dropout": 0.0,
    "max_position_embeddings": 2048,
    "classifier_pooling": "last",
    "norm_placement": "pre",
}

LLAMA: dict[str, Any] = {**LLAMA_LIKE, "layer_norm_eps": 1e-6, "num_key_value_heads": 2}
QWEN3: dict[str, Any] = {**LLAMA, "qk_norm": "head"}

BASE: dict[str, Any] = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
"""The size of BERT and GPT-2 that is called so."""

PRE_NORM: dict[str, Any] = {"norm_placement": "pre", "max_position_embeddings": 2048, "classifier_pooling": "last"}

decoder = partial(
    register,
    tasks=("causal-lm", "sequence-classification", "token-classification", "feature-extraction"),
    task_defaults={"sequence-classification": {"classifier_bias": False}},  # as transformers classifies by a decoder
)
"""Registers a decoder."""

decoder(
    "gpt2-style",
    "Pre-norm decoder with learned positions, a final norm, and the embedding as output projection.",
    source="Radford et al. 2019, section 2.3",
    paper="Radford et al. 2019, Language Models are Unsupervised Multitask Learners",
    tags=("decoder", "pre-norm"),
    defaults={
        **BASE,
        "vocab_size": 50257,
        "norm_placement": "pre",
        "position": "learned",
        "max_position_embeddings": 1024,
        "hidden_act": "gelu_pytorch_tanh",
        "attention_dropout": 0.1,
        "tie_word_embeddings": True,
        "classifier_pooling": "last",
        "initializer": "depth-scaled",
    },
    presets={"base": BASE},
)

decoder(
    "llama-style",
    "Pre-norm decoder with RMSNorm, rotary positions, SwiGLU, grouped queries and no biases.",
    source="Touvron et al. 2023, section 2.2",
    paper="Touvron et al. 2023, LLaMA: Open and Efficient Foundation Language Models",
    tags=("decoder", "pre-norm", "modern"),
    defaults=LLAMA,
)

decoder(
    "gptj-style",
    "Pre-norm decoder with sublayers that read one norm in parallel, and interleaved rotary positions.",
    source="Wang and Komatsuzaki 2021, mesh-transformer-jax",
    paper="Wang and Komatsuzaki 2021, GPT-J-6B: A 6 Billion Parameter Autoregressive Language Model",
    tags=("decoder", "pre-norm", "parallel"),
    defaults={
        **PRE_NORM,
        "parallel_residual": True,
        "position": "rotary-interleaved",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
        "hidden_act": "gelu_new",
        "attention_bias": False,
        "lm_head_bias": True,
        "dropout": 0.0,
    },
)

decoder(
    "alibi-decoder",
    "Pre-norm decoder without position embeddings; heads prefer near keys by fixed slopes.",
    source="Press et al. 2021, section 3",
    paper="Press et al. 2021, Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation",
    tags=("decoder", "pre-norm"),
    defaults={
        **PRE_NORM,
        "position": "alibi",
        "hidden_act": "gelu",
        "tie_word_embeddings": True,
        "initializer": "depth-scaled",
    },
)

decoder(
    "bloom-style",
    "Pre-norm decoder with a norm on its embeddings; heads prefer near keys by fixed slopes.",
    source="BigScience 2022, section 3.2",
    paper="BigScience 2022, BLOOM: A 176B-Parameter Open-Access Multilingual Language Model",
    tags=("decoder", "pre-norm"),
    defaults={
        **PRE_NORM,
        "embedding_norm": True,
        "position": "alibi",
        "hidden_act": "gelu_pytorch_tanh",
        "dropout": 0.0,
        "tie_word_embeddings": True,
    },
    presets={"tiny": {"intermediate_size": 256}},
)

decoder(
    "qk-norm",
    "Pre-norm decoder with RMSNorm, rotary positions and SwiGLU that normalises the queries and keys of each head.",
    source="Henry et al. 2020, section 3; Dehghani et al. 2023, section 2",
    paper="Henry et al. 2020, Query-Key Normalization for Transformers",
    tags=("decoder", "pre-norm", "modern"),
    defaults={**LLAMA_LIKE, "layer_norm_eps": 1e-6, "qk_norm": "head"},
)

decoder(
    "qwen3-style",
    "Pre-norm decoder with RMSNorm, also on queries and keys, rotary positions, SwiGLU and grouped queries.",
    source="Qwen team 2025, section 2, the dense models",
    paper="Qwen team 2025, Qwen3 Technical Report",
    tags=("decoder", "pre-norm", "modern"),
    defaults={**QWEN3, "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0}},
)

OLMO2: dict[str, Any] = {
    **LLAMA_LIKE,
    "norm_placement": "res-post",
    "layer_norm_eps": 1e-6,
    "qk_norm": "full",
    "final_norm": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
}

decoder(
    "olmo2-style",
    "Decoder with RMSNorm on the branch outputs only, normalised queries and keys, rotary positions and SwiGLU.",
    source="OLMo team 2024, section 3.2",
    paper="OLMo team 2024, 2 OLMo 2 Furious",
    tags=("decoder", "res-post-norm", "modern"),
    defaults=OLMO2,
)

decoder(
    "gpt-neox-style",
    "Pre-norm decoder with parallel sublayers, and rotary positions on a quarter of each head.",
    source="Black et al. 2022, section 2.1",
    paper="Black et al. 2022, GPT-NeoX-20B: An Open-Source Autoregressive Language Model",
    tags=("decoder", "pre-norm", "parallel"),
    aliases=("pythia-style",),
    defaults={
        **PRE_NORM,
        "parallel_residual": True,
        "position": "rotary",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
        "hidden_act": "gelu",
        "dropout": 0.0,
    },
    limits=("Both sublayers share one norm: weights of a second one would be those of what reads it.",),
)

decoder(
    "falcon-style",
    "Pre-norm decoder with parallel sublayers, one key-value head and rotary positions.",
    source="Almazrouei et al. 2023, section 4, the 7B model",
    paper="Almazrouei et al. 2023, The Falcon Series of Open Language Models",
    tags=("decoder", "pre-norm", "parallel", "multi-query"),
    defaults={
        **PRE_NORM,
        "parallel_residual": True,
        "num_key_value_heads": 1,
        "position": "rotary",
        "hidden_act": "gelu",
        "attention_bias": False,
        "mlp_bias": False,
        "dropout": 0.0,
        "tie_word_embeddings": True,
    },
)

decoder(
    "diff-transformer",
    "Llama's layers; heads subtract each other's attention weights in pairs, so that noise cancels.",
    source="Ye et al. 2024, section 2",
    paper="Ye et al. 2024, Differential Transformer",
    tags=("decoder", "pre-norm", "modern"),
    defaults={**LLAMA_LIKE, "layer_norm_eps": 1e-5, "attention": "differential"},
)

decoder(
    "value-residual",
    "Llama's layers; each mixes the values of the first layer into its own.",
    source="Zhou et al. 2024, section 3, Learnable-ResFormer",
    paper="Zhou et al. 2024, Value Residual Learning",
    tags=("decoder", "pre-norm", "modern"),
    defaults={**LLAMA_LIKE, "layer_norm_eps": 1e-5, "attention": "value-residual"},
)

decoder(
    "multi-token-prediction",
    "Llama's layers, and in training one more that learns to predict the token after the next.",
    source="DeepSeek-AI 2024, section 2.2",
    paper="Gloeckle et al. 2024, Better & Faster Large Language Models via Multi-token Prediction",
    tags=("decoder", "pre-norm", "modern"),
    defaults={**LLAMA_LIKE, "layer_norm_eps": 1e-5, "num_nextn_predict_layers": 1},
    limits=("The layer of the further token runs in training only: nothing drafts tokens by it (use_mtp).",),
)

decoder(
    "nanochat-style",
    "Pre-norm decoder with squared ReLU, norms on embeddings, queries and keys, and soft-capped logits.",
    source="Karpathy 2025, nanochat, as transformers has it",
    paper="Karpathy 2025, nanochat: The best ChatGPT that $100 can buy",
    tags=("decoder", "pre-norm", "modern"),
    defaults={
        **LLAMA_LIKE,
        "layer_norm_eps": 1e-6,
        "embedding_norm": True,
        "qk_norm": "head",
        "feed_forward": "mlp",
        "hidden_act": "relu2",
        "final_logit_softcapping": 15.0,
    },
    limits=("Norms have weights, which the original's lack; they start at one.",),
)

decoder(
    "ngpt",
    "Decoder on the hypersphere: hidden states and weight vectors of length one, and learned steps between layers.",
    source="Loshchilov et al. 2024, sections 2.1 to 2.6",
    paper="Loshchilov et al. 2024, nGPT: Normalized Transformer with Representation Learning on the Hypersphere",
    tags=("decoder", "modern"),
    defaults={
        **LLAMA_LIKE,
        "norm": "unit",
        "norm_placement": "post",
        "residual": "normalized",
        "embedding_norm": True,
        "attention": "normalized",
        "qk_norm": "head",
        "feed_forward": "normalized",
    },
    deviations=(
        "Embedded tokens are normalised in the forward as well, so that parts that add to them may be combined with "
        "it; with the default parts this changes gradients alone.",
    ),
    limits=(
        "Weight vectors are normalised in new models and after every step of `zoo train`, as the authors do; "
        "transformers' trainer takes `zoo.training.AfterSteps()` among its callbacks, and your own loop calls "
        "`zoo.models.normalize_weights(model)` after the optimiser's step.",
    ),
    builder="zoo.variants.builders.ngpt:ngpt",
)
