"""What all tokenizers of the zoo share: their special tokens, and how they are wrapped for transformers."""

from __future__ import annotations

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
"""In the order of their ids, which are the defaults of [`zoo.models.ZooConfig`][]."""

SPECIALS = list(SPECIAL_TOKENS.values())


def wrap(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """Make a tokenizer what transformers' models and Auto classes expect, and end every text with `<eos>`.

    Args:
        tokenizer: A trained tokenizer whose first ids are `SPECIALS`.

    Returns:
        The same tokenizer, which `AutoTokenizer` loads once it is saved.
    """
    eos = SPECIAL_TOKENS["eos_token"]
    tokenizer.post_processor = TemplateProcessing(
        single=f"$A {eos}", special_tokens=[(eos, tokenizer.token_to_id(eos))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
        **SPECIAL_TOKENS,
    )
