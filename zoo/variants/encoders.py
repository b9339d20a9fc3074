"""Encoders in the style of BERT."""

from functools import partial
from typing import Any

from zoo.registry import register

from .decoders import BASE
from .layer_patterns import GLOBAL, LOCAL, NARROW

ENCODER_TASKS = ("masked-lm", "sequence-classification", "token-classification", "feature-extraction")
BERT_BASE: dict[str, Any] = {"vocab_size": 30522, **BASE}
BERT: dict[str, Any] = {
    **BERT_BASE,
    "norm_placement": "post",
    "layer_norm_eps": 1e-12,
    "embedding_norm": True,
    "position": "learned",
    "hidden_act": "gelu",
    "tie_word_embeddings": True,
    "lm_head_bias": True,
    "lm_head_transform": True,
    "classifier_pooling": "cls",
    "classifier_pooler_act": "tanh",
}

encoder = partial(register, tasks=ENCODER_TASKS)
"""Registers an encoder."""

encoder(
    "bert-style",
    "Post-norm encoder with learned positions, a norm on the embeddings, and BERT's two heads.",
    source="Devlin et al. 2019, section 3",
    paper="Devlin et al. 2019, BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
    tags=("encoder", "post-norm"),
    defaults={**BERT, "attention_dropout": 0.1},
    presets={"base": BERT_BASE},
    limits=("It has no token-type embeddings.",),
)

encoder(
    "albert-style",
    "Post-norm encoder of one layer, applied again and again, with embeddings narrower than the residual stream.",
    source="Lan et al. 2020, section 3.1",
    paper="Lan et al. 2020, ALBERT: A Lite BERT for Self-supervised Learning of Language Representations",
    tags=("encoder", "post-norm", "shared-layers"),
    defaults={
        **BERT,
        "vocab_size": 30000,
        "embedding_size": 128,
        "share_layers": True,
        "hidden_act": "gelu_new",
        "dropout": 0.0,
        "classifier_dropout": 0.1,
    },
    presets={"tiny": {"embedding_size": 16}, "base": {**BERT_BASE, "vocab_size": 30000, "embedding_size": 128}},
    limits=(
        "It has no token-type embeddings.",
        "It has no head for the order of sentences, which the original is trained on next to masked words.",
    ),
)

encoder(
    "roberta-prelayernorm-style",
    "Pre-norm encoder with learned positions, a norm on the embeddings and at the end, and BERT's two heads.",
    source="Ott et al. 2019, fairseq's encoder with normalize_before",
    paper="Liu et al. 2019, RoBERTa: A Robustly Optimized BERT Pretraining Approach",
    tags=("encoder", "pre-norm"),
    defaults={**BERT, "vocab_size": 50265, "norm_placement": "pre", "attention_dropout": 0.1},
    presets={"base": BERT_BASE},
)

encoder(
    "roformer-style",
    "Post-norm encoder with queries and keys rotated by position, and BERT's two heads.",
    source="Su et al. 2021, section 3.4",
    paper="Su et al. 2021, RoFormer: Enhanced Transformer with Rotary Position Embedding",
    tags=("encoder", "post-norm"),
    defaults={
        **BERT,
        "position": "rotary-interleaved",
        "attention_dropout": 0.1,
        "max_position_embeddings": 1536,
        "classifier_pooler_act": "gelu",
    },
    presets={"base": BERT_BASE},
    limits=("It has no token-type embeddings.",),
)

encoder(
    "modernbert-style",
    "Encoder without biases: gated feed-forwards, rotary positions, two layers with a window to one without.",
    source="Warner et al. 2024, section 2",
    paper="Warner et al. 2024, Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder",
    tags=("encoder", "pre-norm", "modern", "sliding-window"),
    defaults={
        **BERT_BASE,
        "vocab_size": 50368,
        "intermediate_size": 1152,
        "num_hidden_layers": 22,
        "norm": "layernorm-no-bias",
        "norm_placement": "pre",
        "residual": "no-first-norm",
        "layer_norm_eps": 1e-5,
        "embedding_norm": True,
        "position": "rotary-by-layer",
        "rope_parameters": {
            GLOBAL: {"rope_type": "default", "rope_theta": 160_000.0},
            LOCAL: {"rope_type": "default", "rope_theta": 10_000.0},
        },
        "max_position_embeddings": 8192,
        "sliding_window": 64,
        "layer_types": [GLOBAL, LOCAL, LOCAL],
        "feed_forward": "gated",
        "hidden_act": "gelu",
        "attention_bias": False,
        "mlp_bias": False,
        "dropout": 0.0,
        "tie_word_embeddings": True,
        "lm_head_bias": True,
        "lm_head_transform": True,
        "classifier_pooling": "cls",
        "classifier_pooler_act": "gelu",
    },
    presets={"base": {**BERT_BASE, "intermediate_size": 1152, "num_hidden_layers": 22}, "tiny": NARROW},
)
