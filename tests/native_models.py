"""Small models of transformers' own classes and of the zoo with random weights, and how to run them alike."""

import copy
from typing import Any

import pytest
import torch
import transformers

import zoo
from zoo.registry.names import parse_name

SIZES = dict(
    **dict(vocab_size=23, hidden_size=16, num_hidden_layers=2, num_attention_heads=4),
    max_position_embeddings=20,
    pad_token_id=0,
)
ENCODER = dict(**SIZES, intermediate_size=24, hidden_act="relu", type_vocab_size=2)
ROBERTA = {**ENCODER, "pad_token_id": 1, "bos_token_id": 0, "hidden_act": "gelu"}
LLAMA = dict(**SIZES, num_key_value_heads=2, intermediate_size=24)
PARTIAL = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
MIXED = ["full_attention", "sliding_attention"]
GPT2 = dict(vocab_size=23, n_embd=16, n_layer=2, n_head=4, n_positions=20)
GPT2 |= dict(pad_token_id=0, eos_token_id=2, bos_token_id=1)
OPT = {**{name: SIZES[name] for name in SIZES if name != "pad_token_id"}, "word_embed_proj_dim": 16, "ffn_dim": 24}
T5 = dict(
    **dict(vocab_size=23, d_model=16, d_kv=6, num_layers=2, num_decoder_layers=1, num_heads=4, d_ff=24, pad_token_id=0),
    **dict(decoder_start_token_id=0, relative_attention_num_buckets=8, relative_attention_max_distance=10),
)
BART = dict(
    **dict(vocab_size=23, d_model=16, encoder_layers=2, decoder_layers=1, max_position_embeddings=20),
    **dict(encoder_attention_heads=4, decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=20),
    **dict(pad_token_id=1, eos_token_id=2, bos_token_id=0, decoder_start_token_id=2, forced_eos_token_id=None),
)
XLM = dict(vocab_size=23, emb_dim=16, n_layers=2, n_heads=4, max_position_embeddings=20, n_langs=1, pad_token_id=0)

BERT_HEADS = ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "Model")
LLAMA_HEADS = ("ForCausalLM", "ForSequenceClassification", "ForTokenClassification", "Model")
GPT2_HEADS = ("LMHeadModel", "ForSequenceClassification", "ForTokenClassification", "Model")
GENERATION = ("ForConditionalGeneration", "Model")
UNTIED = {"tie_word_embeddings": False}
ROTATED = {"rope_parameters": PARTIAL}
GATED = {**T5, **UNTIED, "feed_forward_proj": "gated-gelu"}
APART = {**BART, **UNTIED, "scale_embedding": True, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 27}

NATIVE_CASES = {
    f"{family}-{number}-{head}": (family, head, settings)
    for family, heads, choices, *others in (
        ("Bert", BERT_HEADS, [ENCODER], {**ENCODER, **UNTIED}),
        ("Roberta", BERT_HEADS, [ROBERTA], {**ROBERTA, **UNTIED, "type_vocab_size": 1}),
        ("XLMRoberta", ("ForMaskedLM",), [ROBERTA, {**ROBERTA, **UNTIED}]),
        ("RobertaPreLayerNorm", BERT_HEADS, [ROBERTA], {**ROBERTA, **UNTIED}),
        ("MegatronBert", BERT_HEADS, [ENCODER], {**ENCODER, **UNTIED}),
        ("GPT2", GPT2_HEADS, [GPT2], {**GPT2, **UNTIED, "scale_attn_weights": False, "n_inner": 20}),
        (
            *("Llama", LLAMA_HEADS, [LLAMA]),
            {**LLAMA, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "head_dim": 6},
            {**LLAMA, **ROTATED, "sliding_window": 3},
        ),
        (
            *("Mistral", LLAMA_HEADS, [{**LLAMA, "sliding_window": 4}]),
            *({**LLAMA, "sliding_window": 4, **other} for other in ({"layer_types": MIXED}, ROTATED)),
        ),
        (
            *("Qwen2", LLAMA_HEADS, [LLAMA]),
            {**LLAMA, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
            {**LLAMA, **ROTATED},
        ),
        ("Qwen3", LLAMA_HEADS, [{**LLAMA, "head_dim": 8}], {**LLAMA, **ROTATED}),
        (
            *("OPT", ("ForCausalLM", "ForSequenceClassification", "Model"), [OPT]),
            *({**OPT, "do_layer_norm_before": False}, {**OPT, "_remove_final_layer_norm": True}),
            {**OPT, "enable_bias": False},
        ),
        ("MT5", GENERATION, [GATED]),
        ("T5", GENERATION, [T5, GATED]),
        ("Marian", ("MTModel", "Model"), [BART, APART]),
        ("Bart", GENERATION, [BART, {**BART, **UNTIED}]),
        ("MBart", GENERATION, [BART, {**BART, "scale_embedding": True}]),
        ("Pegasus", GENERATION, [BART]),
        ("Blenderbot", GENERATION, [BART]),
        ("XLM", ("WithLMHeadModel", *GPT2_HEADS[1:]), [XLM]),
    )
    for number, settings in enumerate((*choices, *others))
    for head in (heads if number < len(choices) else heads[:1])
}
"""Every class that is read, and the settings that change its arithmetic."""

SEEN: set[str] = set()
EACH_NATIVE: list[Any] = []
"""To parametrize by: every class with every choice of settings and every head of one of them, the others at night."""
for case in NATIVE_CASES:
    choice, _, head = case.rpartition("-")
    EACH_NATIVE += [pytest.param(case, marks=() if {choice, head} - SEEN else pytest.mark.nightly)]
    SEEN |= {choice, head}

ZOO = {name: value for name, value in LLAMA.items() if name not in ("pad_token_id", "num_key_value_heads")}
ZOO["vocab_size"] = 20


BIASES = ("final_logits_bias", "e_score_correction_bias")


def scramble(model, seed=0):
    """Give every parameter, and each bias that is a buffer, random values: also norms and biases."""
    generator = torch.Generator().manual_seed(seed)
    computed = ("embed_positions.weight",) if model.config.model_type in ("marian", "pegasus") else ()
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if (tensor.requires_grad or name.endswith(BIASES)) and not name.endswith(computed):
                noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
                centre = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
                tensor.copy_(noise * 0.3 + centre)
    return model.eval()


def native_model(family, head, settings, dtype=torch.float64):
    """A model of transformers with random weights. Its configuration may change what it is given."""
    model_class = getattr(transformers, family + head)
    return scramble(model_class(model_class.config_class(**copy.deepcopy(settings)))).to(dtype)


def other_sizes(name, sizes):
    """Sizes but for those that a name has itself."""
    return {size: value for size, value in sizes.items() if size not in parse_name(name).overrides}


def zoo_model(name, task=None, dtype=torch.float64, **settings):
    """A model of the zoo with random weights."""
    return scramble(zoo.build(name, task, **{**other_sizes(name, ZOO), **settings})).to(dtype)


def batch(config, side="right", seed=1):
    """Ids, mask, and what else a model reads: token types where a native encoder has them, target ids."""
    generator = torch.Generator().manual_seed(seed)
    pad = config.pad_token_id  # which some classes take for padding at any place
    ids = torch.randint(3, 17, (3, 7), generator=generator)
    ids[ids == pad] = 17
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    mask[2, 3:] = 0
    mask = mask.flip(-1) if side == "left" else mask
    ids[mask == 0] = pad or 0
    given = {"input_ids": ids, "attention_mask": mask}
    if (types := getattr(config, "type_vocab_size", None)) is not None:
        given["token_type_ids"] = torch.randint(0, types, ids.shape, generator=generator)
    if config.is_encoder_decoder:
        given["decoder_input_ids"] = torch.randint(3, 17, (3, 5), generator=generator)
        given["decoder_input_ids"][given["decoder_input_ids"] == pad] = 17
    return given


def outputs(model, given=None):
    """What a model computes for padded inputs, zero at padding."""
    given = batch(model.config) if given is None else given
    with torch.no_grad():
        result = model(**given)
    found = result.logits if hasattr(result, "logits") else result.last_hidden_state
    if found.ndim == 3 and "decoder_input_ids" not in given:
        found = found * given["attention_mask"][..., None]
    return found


def largest_difference(first, second):
    """Between two tensors."""
    return float((first.double() - second.double()).abs().max())
