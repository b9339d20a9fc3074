"""transformers' own class of every family, as small as can be: nothing of ours may wait for a device oftener."""

from collections.abc import Callable

import transformers

VOCABULARY = 40
SIZES = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
STACKS = {f"{stack}_{name}": size for stack in ("encoder", "decoder") for name, size in
          (("layers", 2), ("attention_heads", 2), ("ffn_dim", 8))}  # fmt: skip
IDS = {"pad_token_id": 0, "eos_token_id": 2}


def bert() -> transformers.BertConfig:
    return transformers.BertConfig(vocab_size=VOCABULARY, **SIZES)


PEERS: dict[str, Callable[[], transformers.PreTrainedModel]] = {
    "causal-lm": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=VOCABULARY, **SIZES)),
    "masked-lm": lambda: transformers.BertForMaskedLM(bert()),
    "sequence-classification": lambda: transformers.BertForSequenceClassification(bert()),
    "token-classification": lambda: transformers.BertForTokenClassification(bert()),
    "seq2seq-lm": lambda: transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=VOCABULARY,
            d_model=8,
            max_position_embeddings=64,
            forced_eos_token_id=None,
            decoder_start_token_id=1,
            **STACKS,
            **IDS,
        )
    ),
}


def t5gemma() -> transformers.T5GemmaForConditionalGeneration:
    """Its stacks have two masks each, whole and of a window, and each is looked at."""
    stack = transformers.T5GemmaModuleConfig(vocab_size=VOCABULARY, head_dim=4, num_key_value_heads=2, **SIZES, **IDS)
    return transformers.T5GemmaForConditionalGeneration(
        transformers.T5GemmaConfig(encoder=stack, decoder=stack, vocab_size=VOCABULARY, decoder_start_token_id=1, **IDS)
    )


OWN_PEERS: dict[str, Callable[[], transformers.PreTrainedModel]] = {"t5gemma-style": t5gemma}
"""For variants with another structure than transformers' class for the task."""


def modernbert() -> transformers.ModernBertForMaskedLM:
    """On FlashAttention it takes padding out in every attention, and waits as often."""
    ends = {"bos_token_id": 1, "cls_token_id": 1, "sep_token_id": 2}
    return transformers.ModernBertForMaskedLM(
        transformers.ModernBertConfig(vocab_size=VOCABULARY, **SIZES, **IDS, **ends)
    )
