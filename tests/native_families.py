"""Small models of the classes of transformers that are written as tables: family, head, settings that matter."""

from __future__ import annotations

from native_models import BART, BERT_HEADS, ENCODER, GPT2, LLAMA, MIXED, ROBERTA

PART = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 6,
    "rope_theta": 1e4,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 5}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0, 1.5],
    "long_factor": [2.0, 4.0],
    "original_max_position_embeddings": 6,
    "factor": 3.0,
}
WIDE = {**LLAMA, "hidden_size": 32, "head_dim": 8, "bos_token_id": 1, "eos_token_id": 2}
GEMMA = {**WIDE, "query_pre_attn_scalar": 5, "sliding_window": 3}
NEOX = {name: value for name, value in WIDE.items() if name not in ("head_dim", "num_key_value_heads")}
FALCON = {name: value for name, value in NEOX.items() if name != "intermediate_size"}
BLOOM = dict(vocab_size=23, hidden_size=16, n_layer=2, n_head=4, pad_token_id=0)
MPT = dict(vocab_size=23, d_model=16, n_layers=2, n_heads=4, max_seq_len=20, pad_token_id=0, bos_token_id=1)
GPT_NEO = dict(
    vocab_size=23,
    hidden_size=16,
    num_layers=2,
    num_heads=4,
    max_position_embeddings=20,
    pad_token_id=0,
    attention_types=[[["global", "local"], 1]],
    window_size=3,
    bos_token_id=1,
    eos_token_id=2,
)
DISTILBERT = dict(
    vocab_size=23,
    dim=16,
    n_layers=2,
    n_heads=4,
    hidden_dim=24,
    max_position_embeddings=20,
    pad_token_id=0,
    activation="relu",
)
XGLM = dict(
    vocab_size=23,
    d_model=16,
    num_layers=2,
    attention_heads=4,
    ffn_dim=24,
    max_position_embeddings=20,
    pad_token_id=1,
)
NARROW = {**ENCODER, "embedding_size": 16}
ALBERT = {**ENCODER, "embedding_size": 6}
MULTIPLIED = {
    **WIDE,
    "embedding_multiplier": 12.0,
    "residual_multiplier": 0.22,
    "logits_scaling": 8.0,
    "attention_multiplier": 0.1,
}
T5GEMMA = {stack: {**GEMMA, "layer_types": MIXED} for stack in ("encoder", "decoder")}
T5GEMMA_DECODER = {
    **GEMMA,
    "layer_types": MIXED[:1],
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "head_dim": 16,
    "intermediate_size": 20,
    "vocab_size": 27,
}
BASES = {
    "full_attention": {"rope_type": "default", "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0},
}
ALIKE = {kind: {"rope_type": "default", "rope_theta": 1e4} for kind in ("full_attention", "sliding_attention")}
SLIDES = {"sliding_window": 3, "layer_types": MIXED}
GPTJ = {**GPT2, "rotary_dim": 2}
BIASED = {"attention_bias": True}

EXPERTS = {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2}
MODERN_BERT = {
    **{name: value for name, value in NEOX.items() if name != "hidden_act"},
    "local_attention": 6,
    "layer_types": ["full_attention", "sliding_attention"],
    "rope_parameters": BASES,
}
GPT_OSS = {**EXPERTS, "intermediate_size": 12}
DEEPSEEK = {
    **NEOX,
    "num_key_value_heads": 4,
    "q_lora_rank": 12,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 12,
    "n_group": 2,
    "topk_group": 2,
    "first_k_dense_replace": 1,
}
HYBRID = {**WIDE, "layer_types": ["linear_attention", "full_attention"]}
DELTA = {
    **dict.fromkeys(("linear_num_key_heads", "linear_conv_kernel_dim"), 2),
    **dict.fromkeys(("linear_num_value_heads", "linear_key_head_dim"), 4),
    "linear_value_head_dim": 6,
}
QWEN3_NEXT = {
    **HYBRID,
    **DELTA,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 12,
    "shared_expert_intermediate_size": 20,
}
LFM2 = {
    **{name: value for name, value in NEOX.items() if name != "hidden_act"},
    "num_key_value_heads": 2,
    "layer_types": ["conv", "full_attention"],
    "block_multiple_of": 8,
}
KIMI = {
    **{name: value for name, value in DEEPSEEK.items() if name not in ("n_routed_experts", "first_k_dense_replace")},
    "num_local_experts": 8,
    "layer_types": ["linear_attention", "full_attention"],
    **dict.fromkeys(("linear_num_heads", "linear_conv_kernel_dim"), 3),
    "linear_head_dim": 6,
    "rms_norm_eps": 1e-6,
}
QWEN3_MOE = {**WIDE, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
QWEN2_MOE = {**QWEN3_MOE, "shared_expert_intermediate_size": 20}
YOUTU = {name: DEEPSEEK[name] for name in (*NEOX, "num_key_value_heads", "q_lora_rank", "kv_lora_rank", "v_head_dim")}
YOUTU |= {"qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "pad_token_id": None}
GRANITE_MOE = {**MULTIPLIED, "num_local_experts": 4, "num_experts_per_tok": 2}
SIGMOIDS = {
    **WIDE,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "moe_intermediate_size": 12,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 2.5,
    "norm_topk_prob": True,
}
EXAONE_MOE = {
    **{name: value for name, value in SIGMOIDS.items() if not name.startswith("n_")},
    "num_experts": 8,
    "n_group": 2,
    **SLIDES,
}
OLMOE = {**LLAMA, "num_experts": 4, "num_experts_per_tok": 2}

FAMILY_CASES = {
    f"{family}{head}-{number}": (family, head, settings)
    for family, head, choices in (
        *(("Albert", head, [ALBERT, NARROW]) for head in BERT_HEADS),
        ("Arcee", "ForCausalLM", [{**WIDE, **BIASED, "mlp_bias": True}]),
        ("BioGpt", "ForCausalLM", [{**ENCODER, "pad_token_id": 1}]),
        ("Bloom", "ForCausalLM", [BLOOM]),
        ("Bloom", "ForSequenceClassification", [BLOOM]),
        ("CodeGen", "ForCausalLM", [GPTJ]),
        ("Cohere", "ForCausalLM", [{**WIDE, **BIASED, "logit_scale": 0.3}]),
        ("Cohere2", "ForCausalLM", [{**WIDE, **SLIDES}, {**WIDE, "layer_types": ["full_attention"] * 2}]),
        ("Cwm", "ForCausalLM", [{**WIDE, **SLIDES, "rope_parameters": LLAMA3}]),
        ("Data2VecText", "ForMaskedLM", [ROBERTA]),
        (
            "DeepseekV3",
            "ForCausalLM",
            [
                DEEPSEEK,
                {**DEEPSEEK, "q_lora_rank": None, "rope_interleave": False, "n_shared_experts": 2, **BIASED},
                {**DEEPSEEK, "topk_group": 1, "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}},
            ],
        ),
        ("DeepseekV3", "ForSequenceClassification", [DEEPSEEK]),
        ("DiffLlama", "ForCausalLM", [{**WIDE, **BIASED}]),
        *(("DistilBert", head, [DISTILBERT]) for head in BERT_HEADS),
        ("Electra", "ForMaskedLM", [{**NARROW, "hidden_act": "gelu"}, {**ALBERT, "hidden_act": "gelu"}]),
        ("Electra", "ForSequenceClassification", [NARROW]),
        ("Ernie", "ForMaskedLM", [ENCODER]),
        ("Ernie4_5", "ForCausalLM", [{**WIDE, "use_bias": True}]),
        (
            "ExaoneMoe",
            "ForCausalLM",
            [
                EXAONE_MOE,
                {**EXAONE_MOE, "num_shared_experts": 2, "layer_types": ["full_attention"] * 2},
            ],
        ),
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
        (
            "GraniteSWA",
            "ForCausalLM",
            [{**MULTIPLIED, **SLIDES, "layer_rope_theta": bases} for bases in (None, [5e3, 0])],
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
        (
            "SolarOpen",
            "ForCausalLM",
            [SIGMOIDS, {**SIGMOIDS, **BIASED, "norm_topk_prob": False}],
        ),
        ("EuroBert", "ForMaskedLM", [WIDE]),
        ("EuroBert", "ForTokenClassification", [WIDE]),
        (
            "Exaone4",
            "ForCausalLM",
            [{**LLAMA, **SLIDES}, {**LLAMA, "sliding_window": None, "layer_types": ["full_attention"] * 2}],
        ),
        (
            "Falcon",
            "ForCausalLM",
            [
                FALCON,
                {**FALCON, "multi_query": False, "bias": True},
                {**FALCON, "parallel_attn": False, "ffn_hidden_size": 24},
                {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2},
                {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
            ],
        ),
        ("Falcon", "ForTokenClassification", [FALCON]),
        ("GPTBigCode", "ForCausalLM", [GPT2, {**GPT2, "multi_query": False}]),
        ("GPTJ", "ForCausalLM", [GPTJ]),
        ("GPTJ", "ForSequenceClassification", [GPTJ]),
        ("GptOss", "ForCausalLM", [{**GPT_OSS, **SLIDES}, {**GPT_OSS, **SLIDES, "rope_parameters": YARN}]),
        ("GptOss", "ForTokenClassification", [{**GPT_OSS, **SLIDES}]),
        ("GPTNeo", "ForCausalLM", [GPT_NEO]),
        ("GPTNeoX", "ForCausalLM", [NEOX, {**NEOX, "use_parallel_residual": False}, {**NEOX, "attention_bias": False}]),
        ("GPTNeoX", "ForTokenClassification", [NEOX]),
        ("Gemma", "ForCausalLM", [WIDE]),
        ("Gemma2", "ForCausalLM", [GEMMA]),
        ("Gemma2", "ForSequenceClassification", [GEMMA]),
        ("Gemma3", "ForCausalLM", [{**GEMMA, **SLIDES, "rope_parameters": rope} for rope in (ALIKE, BASES)]),
        ("Glm", "ForCausalLM", [WIDE]),
        ("Glm4", "ForCausalLM", [{**WIDE, **BIASED}]),
        ("Granite", "ForCausalLM", [MULTIPLIED, {**MULTIPLIED, "tie_word_embeddings": True}]),
        ("Helium", "ForCausalLM", [WIDE]),
        ("HyperCLOVAX", "ForCausalLM", [{**MULTIPLIED, "use_post_norm": post} for post in (False, True)]),
        ("Jais2", "ForCausalLM", [WIDE]),
        ("M2M100", "ForConditionalGeneration", [{**BART, "scale_embedding": True}, {**BART, "pad_token_id": 0}]),
        ("Ministral", "ForCausalLM", [{**WIDE, **SLIDES}]),
        *(("Mixtral", head, [EXPERTS, {**EXPERTS, "sliding_window": 3}]) for head in ("ForCausalLM", "Model")),
        ("ModernBert", "ForMaskedLM", [MODERN_BERT, {**MODERN_BERT, "rope_parameters": ALIKE}]),
        ("ModernBert", "Model", [MODERN_BERT]),
        ("Mpt", "ForCausalLM", [MPT]),
        ("Mpt", "ForSequenceClassification", [MPT]),
        ("Mvp", "ForConditionalGeneration", [BART]),
        ("NanoChat", "ForCausalLM", [LLAMA]),
        ("Nemotron", "ForCausalLM", [WIDE]),
        *(("NomicBert", head, [{**ENCODER, "head_dim": 6}]) for head in BERT_HEADS[1:]),
        ("Olmo", "ForCausalLM", [LLAMA]),
        ("Olmo2", "ForCausalLM", [LLAMA, {**LLAMA, **BIASED, "rope_parameters": YARN}]),
        ("Olmo3", "ForCausalLM", [{**LLAMA, **SLIDES}, {**LLAMA, **SLIDES, "rope_parameters": BASES}]),
        ("Olmoe", "ForCausalLM", [OLMOE, {**OLMOE, "norm_topk_prob": True, **BIASED}]),
        ("OpenAIGPT", "LMHeadModel", [GPT2]),
        ("PLBart", "Model", [{**BART, "scale_embedding": True}]),
        ("Persimmon", "ForCausalLM", [WIDE, {**WIDE, "qk_layernorm": False}]),
        ("Phi", "ForCausalLM", [WIDE, {**WIDE, "qk_layernorm": True, "rope_parameters": PART}]),
        ("Phi", "ForSequenceClassification", [WIDE]),
        ("Phi3", "ForCausalLM", [{**LLAMA, "rope_parameters": LONG}, {**WIDE, "rope_parameters": PART}]),
        ("Qwen2Moe", "ForCausalLM", [QWEN2_MOE, {**QWEN2_MOE, "norm_topk_prob": True, "qkv_bias": False}]),
        ("Qwen2Moe", "ForSequenceClassification", [QWEN2_MOE]),
        ("Qwen3Moe", "ForCausalLM", [QWEN3_MOE, {**QWEN3_MOE, "norm_topk_prob": True, **BIASED}]),
        ("Qwen3Moe", "ForSequenceClassification", [QWEN3_MOE]),
        ("KimiLinear", "ForCausalLM", [KIMI, {**KIMI, "q_lora_rank": None, "mlp_layer_types": ["sparse"] * 2}]),
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
        *(("RoFormer", head, [NARROW, ALBERT]) for head in ("ForMaskedLM", "ForSequenceClassification")),
        ("SeedOss", "ForCausalLM", [{**WIDE, "attention_out_bias": True}]),
        (
            "SmolLM3",
            "ForCausalLM",
            [
                {**WIDE, **SLIDES, "use_sliding_window": True, "no_rope_layers": [1, 1]},
                {**WIDE, "no_rope_layers": [1, 0]},
            ],
        ),
        ("StableLm", "ForCausalLM", [{**WIDE, "use_qkv_bias": True}, {**WIDE, "use_parallel_residual": True}]),
        ("Starcoder2", "ForCausalLM", [{**WIDE, "sliding_window": 3}]),
        *(
            ("T5Gemma", head, [T5GEMMA, {**T5GEMMA, "tie_word_embeddings": False, "decoder": T5GEMMA_DECODER}])
            for head in ("ForConditionalGeneration", "Model")
        ),
        ("VaultGemma", "ForCausalLM", [GEMMA]),
        ("Youtu", "ForCausalLM", [YOUTU, {**YOUTU, **BIASED, "q_lora_rank": None, "rope_interleave": False}]),
        ("XGLM", "ForCausalLM", [XGLM, {**XGLM, "pad_token_id": 3}]),
        ("XLMRobertaXL", "ForMaskedLM", [ROBERTA]),
    )
    for number, settings in enumerate(choices)
}
"""Every class that is written as a table, but for those of [`native_models`][]."""
