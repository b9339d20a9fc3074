"""The tokenizers of two of the original implementations, id for id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tokenizers import Regex, decoders, normalizers, pre_tokenizers

from .kinds import CHARACTERS, TOKENIZERS
from .vocabulary import counted, whole_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

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
    spaces = [normalizers.Replace(Regex("[\u202f\u00a0]"), " "), normalizers.Lowercase()]
    normalizer = normalizers.Sequence(spaces)
    splits = [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.Split(Regex("[,.!?][^,.!?]*"), "isolated")]
    pieces = pre_tokenizers.Sequence(splits)
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
    source = texts if characters is None else [characters]
    nothing = normalizers.Sequence([])
    tokens = [*EXPLICANDO_SPECIALS.values(), *counted(source, nothing, CHARACTERS)]
    return whole_tokens(
        tokens, nothing, CHARACTERS, decoders.Fuse(), specials=EXPLICANDO_SPECIALS, frame="<bos> $A <eos>"
    )
