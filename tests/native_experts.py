"""Small models of classes with experts, latent attention or layers without attention: family, head, settings."""

from native_dense import ALIKE, BASES, BIASED, FULL, LONG, MULTIPLIED, NEOX, PART, SLIDES, WIDE, YARN
from native_models import LLAMA

COARSE = {"rms_norm_eps": 1e-3}  # An epsilon that shows, of all norms but those on latent vectors

EXPERTS = {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2}
GPT_OSS = {**EXPERTS, "intermediate_size": 12}
DEEPSEEK = {
    **NEOX,
    **dict(num_key_value_heads=4, q_lora_rank=12, kv_lora_rank=8, qk_nope_head_dim=6, qk_rope_head_dim=4),
    **dict(v_head_dim=6, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=12, n_group=2, topk_group=2),
    "first_k_dense_replace": 1,
}
HYBRID = {**WIDE, "layer_types": ["linear_attention", "full_attention"]}
DELTA = {
    **dict.fromkeys(("linear_num_key_heads", "linear_conv_kernel_dim"), 2),
    **dict.fromkeys(("linear_num_value_heads", "linear_key_head_dim"), 4),
    "linear_value_head_dim": 6,
}
QWEN3_5 = {**HYBRID, **DELTA}
PICTURES = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}
QWEN3_NEXT = {
    **HYBRID,
    **DELTA,
    **dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=20),
}
LFM2 = {
    **{name: value for name, value in NEOX.items() if name != "hidden_act"},
    "num_key_value_heads": 2,
    "layer_types": ["conv", "full_attention"],
    "block_multiple_of": 8,
}
LFM2_MOE = {**QWEN3_NEXT, "layer_types": LFM2["layer_types"], "num_dense_layers": 1}
KIMI = {
    **{name: value for name, value in DEEPSEEK.items() if name not in ("n_routed_experts", "first_k_dense_replace")},
    "num_local_experts": 8,
    "layer_types": ["linear_attention", "full_attention"],
    **dict.fromkeys(("linear_num_heads", "linear_conv_kernel_dim"), 3),
    "linear_head_dim": 6,
}
QWEN3_MOE = {**WIDE, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
QWEN2_MOE = {**QWEN3_MOE, "shared_expert_intermediate_size": 20}
YOUTU = {name: DEEPSEEK[name] for name in (*NEOX, "num_key_value_heads", "q_lora_rank", "kv_lora_rank", "v_head_dim")}
YOUTU |= {"qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "pad_token_id": None}
MINICPM3 = {**YOUTU, "pad_token_id": 0, "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 8}
MINIMAX = {**WIDE, "num_local_experts": 4, "num_experts_per_tok": 2}
GLM4_LITE = {name: value for name, value in DEEPSEEK.items() if name != "first_k_dense_replace"}
GRANITE_MOE = {**MULTIPLIED, "num_local_experts": 4, "num_experts_per_tok": 2}
SIGMOIDS = {
    **WIDE,
    **dict(n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=2, moe_intermediate_size=12, n_group=2),
    **dict(topk_group=1, first_k_dense_replace=1, routed_scaling_factor=2.5, norm_topk_prob=True),
}
EXAONE_MOE = {name: value for name, value in SIGMOIDS.items() if not name.startswith("n_")}
EXAONE_MOE |= {"num_experts": 8, "n_group": 2, **SLIDES}
OLMOE = {**LLAMA, "num_experts": 4, "num_experts_per_tok": 2}

EXPERT_CASES = [
    (
        "DeepseekV3",
        "ForCausalLM",
        [
            DEEPSEEK,
            {**DEEPSEEK, "q_lora_rank": None, "rope_interleave": False, "n_shared_experts": 2, **BIASED},
            {**DEEPSEEK, **COARSE, "topk_group": 1, "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}},
        ],
    ),
    ("DeepseekV3", "ForSequenceClassification", [DEEPSEEK]),
    ("ExaoneMoe", "ForCausalLM", [EXAONE_MOE, {**EXAONE_MOE, "num_shared_experts": 2, "layer_types": FULL}]),
    ("FlexOlmo", "ForCausalLM", [OLMOE, {**OLMOE, "norm_topk_prob": True, **BIASED}]),
    ("Dots1", "ForCausalLM", [{**SIGMOIDS, **SLIDES}, {**SIGMOIDS, **BIASED, "norm_topk_prob": False}]),
    (
        "Glm4Moe",
        "ForCausalLM",
        [
            SIGMOIDS,
            {**SIGMOIDS, **BIASED, "use_qk_norm": True, "rope_parameters": {**PART, "partial_rotary_factor": 1.0}},
        ],
    ),
    ("GraniteMoe", "ForCausalLM", [GRANITE_MOE, {**GRANITE_MOE, **BIASED, "tie_word_embeddings": True}]),
    (
        "Mellum",
        "ForCausalLM",
        [
            {**QWEN3_MOE, **SLIDES, "rope_parameters": BASES},
            {**QWEN3_MOE, **BIASED, "rope_parameters": ALIKE, "mlp_layer_types": ["dense", "sparse"]},
        ],
    ),
    ("SolarOpen", "ForCausalLM", [SIGMOIDS, {**SIGMOIDS, **BIASED, "norm_topk_prob": False}]),
    (
        "GptOss",
        "ForCausalLM",
        [
            {**GPT_OSS, **SLIDES},
            {**GPT_OSS, **SLIDES, "rope_parameters": YARN, "swiglu_limit": 0.3, "swiglu_alpha": 0.7},
        ],
    ),
    ("GptOss", "ForTokenClassification", [{**GPT_OSS, **SLIDES}]),
    *(("Mixtral", head, [EXPERTS, {**EXPERTS, "sliding_window": 3}]) for head in ("ForCausalLM", "Model")),
    ("Olmoe", "ForCausalLM", [OLMOE, {**OLMOE, "norm_topk_prob": True, **BIASED}]),
    ("Qwen2Moe", "ForCausalLM", [QWEN2_MOE, {**QWEN2_MOE, "norm_topk_prob": True, "qkv_bias": False}]),
    ("Qwen2Moe", "ForSequenceClassification", [QWEN2_MOE]),
    ("Qwen3Moe", "ForCausalLM", [QWEN3_MOE, {**QWEN3_MOE, "norm_topk_prob": True, **BIASED}]),
    ("Qwen3Moe", "ForSequenceClassification", [QWEN3_MOE]),
    ("KimiLinear", "ForCausalLM", [KIMI, {**KIMI, **COARSE, "q_lora_rank": None, "mlp_layer_types": ["sparse"] * 2}]),
    ("KimiLinear", "Model", [KIMI]),
    (
        "Lfm2",
        "ForCausalLM",
        [
            LFM2,
            {**LFM2, "conv_bias": True, "conv_L_cache": 2, "tie_word_embeddings": False},
            {**LFM2, "block_auto_adjust_ff_dim": False},
        ],
    ),
    ("Lfm2", "Model", [LFM2]),
    (
        "Qwen3Next",
        "ForCausalLM",
        [QWEN3_NEXT, {**QWEN3_NEXT, **BIASED, "norm_topk_prob": False, "rope_parameters": PART}],
    ),
    ("Qwen3Next", "ForTokenClassification", [QWEN3_NEXT]),
    (
        "Qwen3_5",
        "ForCausalLM",
        [QWEN3_5, {**QWEN3_5, **BIASED, "rope_parameters": {**PART, "mrope_section": [1, 1, 0]}}],
    ),
    ("Qwen3_5Text", "ForSequenceClassification", [QWEN3_5]),
    (
        "Glm4MoeLite",
        "ForCausalLM",
        [
            {**GLM4_LITE, **COARSE},
            {**GLM4_LITE, "q_lora_rank": None, "rope_interleave": False, "mlp_layer_types": ["sparse"] * 2},
        ],
    ),
    (
        "MiniCPM3",
        "ForCausalLM",
        [
            {**MINICPM3, **COARSE},
            {**MINICPM3, **BIASED, "mlp_bias": True, "q_lora_rank": None, "tie_word_embeddings": False},
            # Every row is longer: the native class takes the factors of a batch's longest row for all.
            {
                **MINICPM3,
                **{"scale_depth": None, "dim_model_base": None},
                "rope_parameters": {**LONG, "original_max_position_embeddings": 2},
            },
        ],
    ),
    ("MiniCPM3", "ForSequenceClassification", [MINICPM3]),
    ("MiniMaxM2", "ForCausalLM", [MINIMAX, {**MINIMAX, "rope_parameters": PART, "tie_word_embeddings": True}]),
    ("Youtu", "ForCausalLM", [YOUTU, {**YOUTU, **BIASED, **COARSE, "q_lora_rank": None, "rope_interleave": False}]),
]
