"""Oracle for the text side of Dive into Deep Learning's translation chapters: preprocessing, vocabulary, ids."""

import re
from collections import Counter
from collections.abc import Sequence

UNK, PAD, BOS, EOS = 0, 1, 2, 3
RESERVED = ("<unk>", "<pad>", "<bos>", "<eos>")


def preprocess(text: str) -> str:
    """Plain spaces, lower case, and a space before each of ,.!? that follows anything but a space."""
    return re.sub(r"(?<=[^ ])[,.!?]", r" \g<0>", re.sub("[\u202f\xa0]", " ", text).lower())


def vocabulary(lines: Sequence[Sequence[str]], min_freq: int = 2) -> dict[str, int]:
    """Ids: the reserved tokens, then words by falling frequency, equally frequent ones by first occurrence."""
    counted = Counter(word for line in lines for word in line).most_common()
    kept = [word for word, count in counted if count >= min_freq and word not in RESERVED]
    return {word: number for number, word in enumerate((*RESERVED, *kept))}
