"""Decoders with a pattern of different layers: in how far they see, in their wavelengths, in having positions."""

from typing import Any

from .decoders import LLAMA, OLMO2, decoder

LOCAL, GLOBAL = "sliding_attention", "full_attention"
NARROW = {"sliding_window": 16}

GEMMA: dict[str, Any] = {
    **LLAMA,
    "norm_placement": "sandwich",
    "hidden_act": "gelu_pytorch_tanh",
    "max_position_embeddings": 8192,
    "scale_embedding": True,
    "tie_word_embeddings": True,
}

decoder(
    "smollm3-style",
    "Llama's layers; every fourth has no positions.",
    source="Bakouch et al. 2025, SmolLM3, architecture",
    paper="Yang et al. 2025, Rope to Nope and Back Again: A New Hybrid Attention Strategy",
    tags=("decoder", "pre-norm", "modern", "nope"),
    defaults={
        **LLAMA,
        "nope_layers": [False, False, False, True],
        "rope_parameters": {"rope_type": "default", "rope_theta": 2_000_000.0},
        "tie_word_embeddings": True,
    },
)

decoder(
    "olmo3-style",
    "OLMo 2's layers, three with a sliding window to one that sees the whole text.",
    source="Olmo team 2025, the base models' architecture",
    paper="Olmo team 2025, Olmo 3",
    tags=("decoder", "res-post-norm", "modern", "sliding-window"),
    defaults={
        **OLMO2,
        "sliding_window": 4096,
        "layer_types": [LOCAL, LOCAL, LOCAL, GLOBAL],
        "max_position_embeddings": 8192,
    },
    presets={"tiny": NARROW},
)

decoder(
    "gemma3-style",
    """Decoder with norms around each sublayer and on queries and keys; five local layers to a global one.

    Local layers rotate by wavelengths of base 10,000, global ones by those of base 1,000,000.
    """,
    source="Gemma team 2025, section 2",
    paper="Gemma team 2025, Gemma 3 Technical Report",
    tags=("decoder", "sandwich-norm", "modern", "sliding-window"),
    defaults={
        **GEMMA,
        "qk_norm": "head",
        "sliding_window": 1024,
        "layer_types": [LOCAL, LOCAL, LOCAL, LOCAL, LOCAL, GLOBAL],
        "position": "rotary-by-layer",
    },
    presets={"tiny": NARROW},
)

decoder(
    "gemma2-style",
    "Decoder with norms on both sides of each sublayer, soft-capped logits, alternating local and global attention.",
    source="Gemma team 2024, section 2",
    paper="Gemma team 2024, Gemma 2: Improving Open Language Models at a Practical Size",
    tags=("decoder", "sandwich-norm", "modern", "sliding-window"),
    defaults={
        **GEMMA,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "sliding_window": 4096,
        "layer_types": [LOCAL, GLOBAL],
    },
    presets={"tiny": NARROW},
)
