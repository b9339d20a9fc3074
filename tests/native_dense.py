"""Small models of classes with attention in every layer and one feed-forward network: family, head, settings."""

from native_models import BART, BERT_HEADS, ENCODER, GPT2, LLAMA, MIXED, ROBERTA

PART = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 1e4}
LLAMA3["original_max_position_embeddings"] = 6
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 5}
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 1.5], "long_factor": [2.0, 4.0]}
LONG |= {"original_max_position_embeddings": 6, "factor": 3.0}
WIDE = {**LLAMA, "hidden_size": 32, "head_dim": 8, "bos_token_id": 1, "eos_token_id": 2}
GEMMA = {**WIDE, "query_pre_attn_scalar": 5, "sliding_window": 3}
NEOX = {name: value for name, value in WIDE.items() if name not in ("head_dim", "num_key_value_heads")}
FALCON = {name: value for name, value in NEOX.items() if name != "intermediate_size"}
BLOOM = dict(vocab_size=23, hidden_size=16, n_layer=2, n_head=4, pad_token_id=0)
MPT = dict(vocab_size=23, d_model=16, n_layers=2, n_heads=4, max_seq_len=20, pad_token_id=0, bos_token_id=1)
COMMON = dict(vocab_size=23, max_position_embeddings=20)
GPT_NEO = dict(
    **COMMON,
    **dict(hidden_size=16, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=3),
    **dict(pad_token_id=0, bos_token_id=1, eos_token_id=2),
)
DISTILBERT = dict(**COMMON, dim=16, n_layers=2, n_heads=4, hidden_dim=24, pad_token_id=0, activation="relu")
XGLM = dict(**COMMON, d_model=16, num_layers=2, attention_heads=4, ffn_dim=24, pad_token_id=1)
NARROW = {**ENCODER, "embedding_size": 16}
ALBERT = {**ENCODER, "embedding_size": 6}
MULTIPLIED = {**WIDE, "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0}
MULTIPLIED["attention_multiplier"] = 0.1
T5GEMMA = {stack: {**GEMMA, "layer_types": MIXED} for stack in ("encoder", "decoder")}
T5GEMMA_DECODER = {**GEMMA, "layer_types": MIXED[:1], "num_hidden_layers": 1, "num_attention_heads": 2}
T5GEMMA_DECODER |= {"head_dim": 16, "intermediate_size": 20, "vocab_size": 27}
BASES = {
    "full_attention": {"rope_type": "default", "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0},
}
ALIKE = {kind: {"rope_type": "default", "rope_theta": 1e4} for kind in ("full_attention", "sliding_attention")}
SLIDES = {"sliding_window": 3, "layer_types": MIXED}
FULL = ["full_attention"] * 2
GPTJ = {**GPT2, "rotary_dim": 2}
BIASED = {"attention_bias": True}
MODERN_BERT = {
    **{name: value for name, value in NEOX.items() if name != "hidden_act"},
    "local_attention": 6,
    "layer_types": ["full_attention", "sliding_attention"],
    "rope_parameters": BASES,
}

DENSE_CASES = [
    *(("Albert", head, [ALBERT, NARROW]) for head in BERT_HEADS),
    ("Arcee", "ForCausalLM", [{**WIDE, **BIASED, "mlp_bias": True}]),
    ("BioGpt", "ForCausalLM", [{**ENCODER, "pad_token_id": 1}]),
    ("Bloom", "ForCausalLM", [BLOOM]),
    ("Bloom", "ForSequenceClassification", [BLOOM]),
    ("CodeGen", "ForCausalLM", [GPTJ]),
    ("Cohere", "ForCausalLM", [{**WIDE, **BIASED, "logit_scale": 0.3}]),
    ("Cohere2", "ForCausalLM", [{**WIDE, **SLIDES}, {**WIDE, "layer_types": FULL}]),
    ("Cwm", "ForCausalLM", [{**WIDE, **SLIDES, "rope_parameters": LLAMA3}]),
    ("Data2VecText", "ForMaskedLM", [ROBERTA]),
    ("DiffLlama", "ForCausalLM", [{**WIDE, **BIASED}]),
    *(("DistilBert", head, [DISTILBERT]) for head in BERT_HEADS),
    ("Electra", "ForMaskedLM", [{**NARROW, "hidden_act": "gelu"}, {**ALBERT, "hidden_act": "gelu"}]),
    ("Electra", "ForSequenceClassification", [NARROW]),
    ("Ernie", "ForMaskedLM", [ENCODER]),
    ("Ernie4_5", "ForCausalLM", [{**WIDE, "use_bias": True}]),
    ("GraniteSWA", "ForCausalLM", [{**MULTIPLIED, **SLIDES, "layer_rope_theta": bases} for bases in (None, [5e3, 0])]),
    ("EuroBert", "ForMaskedLM", [WIDE]),
    ("EuroBert", "ForTokenClassification", [WIDE]),
    ("Exaone4", "ForCausalLM", [{**LLAMA, **SLIDES}, {**LLAMA, "sliding_window": None, "layer_types": FULL}]),
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
    ("ModernBert", "ForMaskedLM", [MODERN_BERT, {**MODERN_BERT, "rope_parameters": ALIKE}]),
    ("ModernBert", "Model", [MODERN_BERT]),
    ("Mpt", "ForCausalLM", [MPT]),
    ("Mpt", "ForSequenceClassification", [MPT]),
    ("Mvp", "ForConditionalGeneration", [BART]),
    ("NanoChat", "ForCausalLM", [LLAMA, {**LLAMA, "head_dim": 8, "rope_parameters": YARN}]),
    ("Nemotron", "ForCausalLM", [WIDE]),
    *(("NomicBert", head, [{**ENCODER, "head_dim": 6}]) for head in BERT_HEADS[1:]),
    ("Olmo", "ForCausalLM", [LLAMA]),
    ("Olmo2", "ForCausalLM", [LLAMA, {**LLAMA, **BIASED, "rope_parameters": YARN}]),
    ("Olmo3", "ForCausalLM", [{**LLAMA, **SLIDES}, {**LLAMA, **SLIDES, "rope_parameters": BASES}]),
    ("OpenAIGPT", "LMHeadModel", [GPT2]),
    ("PLBart", "Model", [{**BART, "scale_embedding": True}]),
    ("Persimmon", "ForCausalLM", [WIDE, {**WIDE, "qk_layernorm": False}]),
    ("Phi", "ForCausalLM", [WIDE, {**WIDE, "qk_layernorm": True, "rope_parameters": PART}]),
    ("Phi", "ForSequenceClassification", [WIDE]),
    ("Phi3", "ForCausalLM", [{**LLAMA, "rope_parameters": LONG}, {**WIDE, "rope_parameters": PART}]),
    *(("RoFormer", head, [NARROW, ALBERT]) for head in ("ForMaskedLM", "ForSequenceClassification")),
    ("SeedOss", "ForCausalLM", [{**WIDE, "attention_out_bias": True}]),
    (
        "SmolLM3",
        "ForCausalLM",
        [{**WIDE, **SLIDES, "use_sliding_window": True, "no_rope_layers": [1, 1]}, {**WIDE, "no_rope_layers": [1, 0]}],
    ),
    ("StableLm", "ForCausalLM", [{**WIDE, "use_qkv_bias": True}, {**WIDE, "use_parallel_residual": True}]),
    ("Starcoder2", "ForCausalLM", [{**WIDE, "sliding_window": 3}]),
    *(
        ("T5Gemma", head, [T5GEMMA, {**T5GEMMA, "tie_word_embeddings": False, "decoder": T5GEMMA_DECODER}])
        for head in ("ForConditionalGeneration", "Model")
    ),
    ("VaultGemma", "ForCausalLM", [GEMMA]),
    ("XGLM", "ForCausalLM", [XGLM, {**XGLM, "pad_token_id": 3}]),
    ("XLMRobertaXL", "ForMaskedLM", [ROBERTA]),
]
