"""Oracle for the text side of Dive into Deep Learning's translation chapters: preprocessing, vocabulary, ids, BLEU."""

import math
import re
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

UNK, PAD, BOS, EOS = 0, 1, 2, 3
RESERVED = ("<unk>", "<pad>", "<bos>", "<eos>")


def bleu(prediction: str, label: str, k: int) -> float:
    """The book's BLEU over n-grams up to length k, the n-th precision weighing 2^-n.

    Raises:
        ZeroDivisionError: The prediction has fewer than k words.
    """
    predicted, expected = prediction.split(" "), label.split(" ")
    score = math.exp(min(0.0, 1 - len(expected) / len(predicted)))
    for n in range(1, k + 1):
        ours, theirs = (
            Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1)) for words in (predicted, expected)
        )
        score *= ((ours & theirs).total() / ours.total()) ** 0.5**n
    return score


def preprocess(text: str) -> str:
    """Plain spaces, lower case, and a space before each of ,.!? that follows anything but a space."""
    return re.sub(r"(?<=[^ ])[,.!?]", r" \g<0>", re.sub("[\u202f\xa0]", " ", text).lower())


def tokenize(text: str, num_examples: int | None = None) -> tuple[list[list[str]], list[list[str]]]:
    """Words of the two tab-separated columns of the first `num_examples` + 1 lines, skipping lines of other shapes."""
    lines = text.split("\n")
    pairs = [line.split("\t") for line in (lines[: num_examples + 1] if num_examples else lines)]
    pairs = [pair for pair in pairs if len(pair) == 2]
    return [source.split(" ") for source, _ in pairs], [target.split(" ") for _, target in pairs]


def vocabulary(lines: Sequence[Sequence[str]], min_freq: int = 2) -> dict[str, int]:
    """Ids: the reserved tokens, then words by falling frequency, equally frequent ones by first occurrence."""
    counted = Counter(word for line in lines for word in line).most_common()
    kept = [word for word, count in counted if count >= min_freq and word not in RESERVED]
    return {word: number for number, word in enumerate((*RESERVED, *kept))}


def encode(lines: Sequence[Sequence[str]], vocab: dict[str, int], num_steps: int) -> tuple[Tensor, Tensor]:
    """Ids with eos, cut or padded to `num_steps`, and how many are not padding. *Shape:* (n, num_steps), (n,)."""
    rows = [[*(vocab.get(word, UNK) for word in line), EOS] for line in lines]
    ids = torch.tensor([(row + [PAD] * num_steps)[:num_steps] for row in rows])
    return ids, (ids != PAD).sum(dim=1)


def encode_for_prediction(sentence: str, vocab: dict[str, int], num_steps: int) -> tuple[Tensor, Tensor]:
    """One lower-cased sentence split at spaces, with a valid length that counts also what was cut off.

    *Shape:* (1, num_steps) and (1,)
    """
    words = sentence.lower().split(" ")
    ids, _ = encode([words], vocab, num_steps)
    return ids, torch.tensor([len(words) + 1])
