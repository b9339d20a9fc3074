"""The architectures that win BabyLM's challenges: LTG-BERT and GPT-BERT."""

from typing import Any

from zoo.registry import Quirk, register

from .decoders import BASE
from .encoders import ENCODER_TASKS, encoder

COMMON: dict[str, Any] = {
    **BASE,
    "intermediate_size": 2048,
    "vocab_size": 16384,
    "norm": "layernorm-no-affine",
    "norm_placement": "pre",
    "embedding_norm": True,
    "position": "disentangled",
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 512,
    "feed_forward": "gated",
    "hidden_act": "gelu_pytorch_tanh",
    "mlp_bias": False,
    "mlp_inner_norm": True,
    "attention_dropout": 0.1,
    "initializer": "layer-scaled",
    "tie_word_embeddings": True,
    "lm_head_bias": True,
    "lm_head_transform": True,
    "lm_head_transform_act": "gelu",
    "lm_head_transform_bias": True,
    "classifier_pooling": "cls",
}
SMALL = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "intermediate_size": 1024}
"""The size for 10 million words."""

encoder(
    "ltg-bert-style",
    "Encoder with disentangled relative positions, a norm after attention and one inside gated feed-forwards.",
    source="github.com/ltgoslo/ltg-bert, training/model.py",
    paper="Samuel et al. 2023, Trained on 100 million words and still in shape: BERT meets British National Corpus",
    tags=("encoder", "pre-norm", "babylm"),
    defaults={**COMMON, "attention": "disentangled", "layer_norm_eps": 1e-7},
    presets={"small": SMALL},
    quirks={
        "positions-in-other-rows": Quirk(
            "A head takes queries and keys of positions from other rows of the projections than those of contents.",
            overrides={"attention": "disentangled-other-rows"},
        )
    },
    limits=("It has no head for the order of sentences, which some of the original models are trained on.",),
)

register(
    "gpt-bert-style",
    "LTG-BERT with gated attention and mixtures over depth; the same weights are a causal and a masked language model.",
    tasks=("causal-lm", *ENCODER_TASKS),
    source="github.com/ltgoslo/gpt-bert, pretraining/model_extra.py",
    paper="Charpentier and Samuel 2024, GPT or BERT: why not both?",
    tags=("encoder", "decoder", "pre-norm", "babylm"),
    defaults={
        **COMMON,
        "intermediate_size": 2560,
        "attention": "disentangled-gated",
        "residual": "depth-weighted-average",
        "masked_next_token": True,
        "layer_norm_eps": 1e-5,
    },
    presets={"small": {**SMALL, "intermediate_size": 1280, "vocab_size": 8192}},
    limits=("Classifiers read the last hidden states of an encoder, normed.",),
)
