"""The kinds of tokenizers, each a function from texts to a trained tokenizer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from zoo.registry import Registry

from .vocabulary import SPECIAL_TOKENS, SPECIALS, wrap

TOKENIZERS: Registry[Callable[..., PreTrainedTokenizerFast]] = Registry("tokenizer", built_in=__name__)
"""Functions that train a tokenizer on texts; what else they take are its options."""

UNKNOWN = SPECIAL_TOKENS["unk_token"]


@TOKENIZERS.register("bpe")
def train_bpe(
    texts: Iterable[str], *, vocab_size: int = 2000, min_frequency: int = 2, lower_case: bool = False
) -> PreTrainedTokenizerFast:
    """Train byte-level BPE (Sennrich et al. 2016; bytes as in GPT-2): nothing is unknown, and every text comes back.

    Args:
        texts: What to train on.
        vocab_size: Number of ids, special ones and the 256 bytes included.
        min_frequency: How often two pieces must occur side by side to become one.
        lower_case: Whether texts are lower-cased first.

    Returns:
        The tokenizer.
    """
    tokenizer = Tokenizer(models.BPE())
    if lower_case:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return wrap(tokenizer)


@TOKENIZERS.register("word")
def train_word(
    texts: Iterable[str], *, vocab_size: int | None = None, min_frequency: int = 2, lower_case: bool = False
) -> PreTrainedTokenizerFast:
    """Collect words and punctuation marks; what is rare is unknown.

    Args:
        texts: What to collect from.
        vocab_size: Number of ids at most, special ones included; None for as many as there are.
        min_frequency: How often a word must occur.
        lower_case: Whether texts are lower-cased first.

    Returns:
        The tokenizer.
    """
    steps = [normalizers.NFC(), *([normalizers.Lowercase()] if lower_case else [])]
    splits = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(r"[^\w\s'’-]"), "isolated")]
    return _whole_tokens(
        texts,
        normalizers.Sequence(steps),
        pre_tokenizers.Sequence(splits),
        decoders.WordPiece(),
        vocab_size,
        min_frequency,
    )


@TOKENIZERS.register("character")
def train_character(
    texts: Iterable[str], *, vocab_size: int | None = None, min_frequency: int = 1, lower_case: bool = False
) -> PreTrainedTokenizerFast:
    """Collect characters; what is rare is unknown.

    Args:
        texts: What to collect from.
        vocab_size: Number of ids at most, special ones included; None for as many as there are.
        min_frequency: How often a character must occur.
        lower_case: Whether texts are lower-cased first.

    Returns:
        The tokenizer.
    """
    steps = [normalizers.NFC(), *([normalizers.Lowercase()] if lower_case else [])]
    split = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    return _whole_tokens(texts, normalizers.Sequence(steps), split, decoders.Fuse(), vocab_size, min_frequency)


def _whole_tokens(
    texts: Iterable[str],
    normalizer: normalizers.Normalizer,
    pre_tokenizer: pre_tokenizers.PreTokenizer,
    decoder: decoders.Decoder,
    vocab_size: int | None,
    min_frequency: int,
) -> PreTrainedTokenizerFast:
    """Make a tokenizer of the pieces that the pre-tokenizer yields, the most frequent first, then by the alphabet."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(token for token, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(text)))
    ranked = sorted(
        (token for token, n in counts.items() if n >= min_frequency), key=lambda token: (-counts[token], token)
    )
    tokens = [*SPECIALS, *(token for token in ranked if token not in SPECIALS)][:vocab_size]
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token=UNKNOWN))
    tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = normalizer, pre_tokenizer, decoder
    tokenizer.add_special_tokens(SPECIALS)
    return wrap(tokenizer)
