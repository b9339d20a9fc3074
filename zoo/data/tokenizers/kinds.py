"""The kinds of tokenizers, each a function from texts to a trained tokenizer, and what they have in common."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing

from zoo.base.errors import ConfigError
from zoo.registry import Registry

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

TOKENIZERS: Registry[Callable[..., PreTrainedTokenizerFast]] = Registry(
    "tokenizer", built_in="zoo.data.tokenizers.kinds"
)
"""Functions that train a tokenizer on texts; what else they take are its options."""

SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
"""In the order of their ids, which are the defaults of [`zoo.models.ZooConfig`][]."""

SPECIALS = list(SPECIAL_TOKENS.values())
ENDED = "$A <eos>"  # How most tokenizers frame a text


def options_of(train: Callable[..., PreTrainedTokenizerFast]) -> dict[str, Any]:
    """Options of a kind of tokenizer with their defaults."""
    parameters = inspect.signature(train).parameters.values()
    return {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}


@TOKENIZERS.register("bpe")
def train_bpe(
    texts: Iterable[str], *, vocab_size: int = 2000, min_frequency: int = 2, lower_case: bool = False
) -> PreTrainedTokenizerFast:
    """Train byte-level BPE (Sennrich et al. 2016; bytes as in GPT-2): nothing is unknown, and every text comes back.

    Args:
        vocab_size: Number of ids, special ones and the 256 bytes included.
        min_frequency: How often two pieces must occur side by side to become one.
    """
    if min_frequency < 0:
        raise ConfigError(f"min_frequency={min_frequency} was given for a tokenizer; valid: 0 and more")
    trainer = partial(trainers.BpeTrainer, min_frequency=min_frequency)
    return byte_level(models.BPE(), trainer, texts, vocab_size, lower_case)


@TOKENIZERS.register("unigram")
def train_unigram(
    texts: Iterable[str], *, vocab_size: int = 2000, max_piece_length: int = 16, lower_case: bool = False
) -> PreTrainedTokenizerFast:
    """Train a unigram language model over bytes (Kudo 2018): nothing is unknown, and every text comes back.

    Args:
        vocab_size: Number of ids, special ones and the 256 bytes included.
        max_piece_length: Number of bytes in a piece, at most.
    """
    unknown = SPECIAL_TOKENS["unk_token"]
    trainer = partial(trainers.UnigramTrainer, max_piece_length=max_piece_length, unk_token=unknown)
    return byte_level(models.Unigram(), trainer, texts, vocab_size, lower_case)


def byte_level(
    model: models.Model, trainer: Callable[..., Any], texts: Iterable[str], vocab_size: int, lower_case: bool
) -> PreTrainedTokenizerFast:
    check_size(vocab_size, len(SPECIALS) + NUM_BYTES)
    tokenizer, alphabet = Tokenizer(model), pre_tokenizers.ByteLevel.alphabet()
    if lower_case:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    options = {"vocab_size": vocab_size, "special_tokens": SPECIALS, "show_progress": False}
    tokenizer.train_from_iterator(texts, trainer(initial_alphabet=alphabet, **options))
    return wrap(tokenizer)


@TOKENIZERS.register("word")
def train_word(
    texts: Iterable[str], *, vocab_size: int | None = None, min_frequency: int = 2, lower_case: bool = False
) -> PreTrainedTokenizerFast:
    """Collect words and punctuation marks, at most `vocab_size` with special ones; what is rare is unknown."""
    splits = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(r"[^\w\s'’-]"), "isolated")]
    pieces = pre_tokenizers.Sequence(splits)
    return collected(texts, pieces, decoders.WordPiece(), vocab_size, min_frequency, lower_case)


@TOKENIZERS.register("character")
def train_character(
    texts: Iterable[str], *, vocab_size: int | None = None, min_frequency: int = 1, lower_case: bool = False
) -> PreTrainedTokenizerFast:
    """Collect characters, at most `vocab_size` with special ones; what is rare is unknown."""
    return collected(texts, CHARACTERS, decoders.Fuse(), vocab_size, min_frequency, lower_case)


CHARACTERS = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")  # Cuts a text into characters, line breaks among them
NUM_BYTES = 256


def check_size(vocab_size: int | None, least: int) -> None:
    """Refuse a vocabulary that the special tokens, and the bytes of a byte-level one, do not fit into."""
    if vocab_size is not None and not (isinstance(vocab_size, int) and vocab_size >= least):
        raise ConfigError(f"vocab_size={vocab_size!r} was given for a tokenizer; valid: {least} and more")


def collected(
    texts: Iterable[str],
    pieces: pre_tokenizers.PreTokenizer,
    decoder: decoders.Decoder,
    vocab_size: int | None,
    min_frequency: int,
    lower_case: bool,
) -> PreTrainedTokenizerFast:
    """Make a tokenizer of the pieces of texts, the most frequent first, and those as frequent in alphabetical order."""
    check_size(vocab_size, len(SPECIALS) + 1)
    normalizer = normalizers.Sequence([normalizers.NFC(), *([normalizers.Lowercase()] if lower_case else [])])
    counts = counted(texts, normalizer, pieces)
    frequent = [piece for piece, count in counts.items() if count >= min_frequency and piece not in SPECIALS]
    tokens = [*SPECIALS, *sorted(frequent, key=lambda piece: (-counts[piece], piece))][:vocab_size]
    return whole_tokens(tokens, normalizer, pieces, decoder)


D2L_SPECIALS = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>"}
EXPLICANDO_SPECIALS = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>"}


@TOKENIZERS.register("d2l-word")
def train_d2l_word(
    texts: Iterable[str], *, vocab_size: int | None = None, min_frequency: int = 2
) -> PreTrainedTokenizerFast:
    """Collect words as "Dive into Deep Learning" does, chapter "Machine Translation and the Dataset".

    Texts are lower-cased, non-breaking spaces are spaces, and words end before each of `,.!?`. Ids: `<unk>`, `<pad>`,
    `<bos>`, `<eos>`, then words by falling frequency, equally frequent ones by first occurrence. Decoded words have
    spaces between them, before punctuation marks too.

    Args:
        vocab_size: Number of ids at most, special ones included; None for no limit.
    """
    check_size(vocab_size, len(D2L_SPECIALS) + 1)
    spaces = [normalizers.Replace(Regex("[\u202f\u00a0]"), " "), normalizers.Lowercase()]
    splits = [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.Split(Regex("[,.!?][^,.!?]*"), "isolated")]
    normalizer, pieces = normalizers.Sequence(spaces), pre_tokenizers.Sequence(splits)
    words = counted(texts, normalizer, pieces).most_common()
    kept = [word for word, count in words if count >= min_frequency and word not in D2L_SPECIALS.values()]
    tokens = [*D2L_SPECIALS.values(), *kept][:vocab_size]
    return whole_tokens(tokens, normalizer, pieces, decoders.WordPiece(cleanup=False), specials=D2L_SPECIALS)


@TOKENIZERS.register("explicando-character")
def train_explicando_character(texts: Iterable[str], *, characters: str | None = None) -> PreTrainedTokenizerFast:
    """Number characters as "Explicando Transformers" does: `<pad>`, `<bos>`, `<eos>`, then a given vocabulary.

    A text is placed between `<bos>` and `<eos>`. No character is unknown to a vocabulary that is collected from the
    texts; of a given one, characters that it lacks cannot be read.

    Args:
        characters: The vocabulary instead, for instance Python's `string.printable`.
    """
    if not isinstance(characters, (str, type(None))):
        raise ConfigError(f"characters={characters!r} was given for a tokenizer; it is a text")
    source = texts if characters is None else [characters]
    nothing = normalizers.Sequence([])
    tokens = [*EXPLICANDO_SPECIALS.values(), *counted(source, nothing, CHARACTERS)]
    return whole_tokens(
        tokens, nothing, CHARACTERS, decoders.Fuse(), specials=EXPLICANDO_SPECIALS, frame="<bos> $A <eos>"
    )


def wrap(
    tokenizer: Tokenizer, *, specials: Mapping[str, str] = SPECIAL_TOKENS, frame: str = ENDED
) -> PreTrainedTokenizerFast:
    """Make a tokenizer that `AutoTokenizer` loads once saved; `frame` has special tokens around a text, `$A`."""
    from transformers import PreTrainedTokenizerFast

    framing = [token for token in frame.split() if token != "$A"]
    tokenizer.post_processor = TemplateProcessing(
        single=frame, special_tokens=[(token, tokenizer.token_to_id(token)) for token in framing]
    )
    options = {"clean_up_tokenization_spaces": False, "model_input_names": ["input_ids", "attention_mask"]}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options, **specials)


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
