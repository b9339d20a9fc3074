"""Common parts of the zoo's tokenizers: special tokens, and the wrapper for transformers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
"""In the order of their ids, which are the defaults of [`zoo.models.ZooConfig`][]."""

SPECIALS = list(SPECIAL_TOKENS.values())

UNKNOWN = SPECIAL_TOKENS["unk_token"]

ENDED = "$A <eos>"  # How most tokenizers frame a text


def wrap(
    tokenizer: Tokenizer, *, specials: Mapping[str, str] = SPECIAL_TOKENS, frame: str = ENDED
) -> PreTrainedTokenizerFast:
    """Make a tokenizer that `AutoTokenizer` loads once saved; `frame` has special tokens around a text, `$A`."""
    from transformers import PreTrainedTokenizerFast

    framing = [token for token in frame.split() if token != "$A"]
    tokenizer.post_processor = TemplateProcessing(
        single=frame, special_tokens=[(token, tokenizer.token_to_id(token)) for token in framing]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
        **specials,
    )


def leave_open(tokenizer: PreTrainedTokenizerFast) -> None:
    """Frame texts with nothing from now on, and begin a text with the token that ends one.

    Servers and pipelines put no end after a prompt. Rows of documents have one token between two of them, so that a
    model learns no other token in front of a text; an empty prompt and the scores of sentences start with it.
    """
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="$A")
    tokenizer.bos_token = tokenizer.eos_token


def open_texts(tokenizer: PreTrainedTokenizerFast) -> None:
    """Begin every text with the end of a text, as rows of documents do; the first token is predicted there."""
    leave_open(tokenizer)
    end, number = tokenizer.eos_token, tokenizer.eos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=f"{end} $A", special_tokens=[(end, number)])


def counted(
    texts: Iterable[str], normalizer: normalizers.Normalizer, pre_tokenizer: pre_tokenizers.PreTokenizer
) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(piece for piece, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(text)))
    return counts


def whole_tokens(
    tokens: Iterable[str],
    normalizer: normalizers.Normalizer,
    pre_tokenizer: pre_tokenizers.PreTokenizer,
    decoder: decoders.Decoder,
    *,
    specials: Mapping[str, str] = SPECIAL_TOKENS,
    frame: str = ENDED,
) -> PreTrainedTokenizerFast:
    """Make a tokenizer of a list of pieces, which are not cut any further."""
    vocabulary = {token: number for number, token in enumerate(tokens)}
    unknown = {"unk_token": specials["unk_token"]} if "unk_token" in specials else {}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, **unknown))
    tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = normalizer, pre_tokenizer, decoder
    tokenizer.add_special_tokens(list(specials.values()))
    return wrap(tokenizer, specials=specials, frame=frame)
