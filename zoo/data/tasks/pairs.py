"""Tasks on pairs of texts: translation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.tokenizers import Tokenizers, train_tokenizers
from zoo.data.tokenizers.encoding import ended, to_ids

from .mapped import texts_of
from .scores import Predictions, Score, translation_scores
from .sources import SHIPPED
from .tables import Kind, encoded, short_enough
from .task import DataTask, register_task

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class PairsTask(DataTask):
    """Pairs of texts for an encoder-decoder: the first column is read, the second written."""

    model_tasks: ClassVar[tuple[str, ...]] = ("seq2seq-lm",)
    kinds = (Kind.SOURCE, Kind.SOURCE)
    collator_class: ClassVar[str] = "DataCollatorForSeq2Seq"

    # Number of tokens on either side, ends included, above which a pair is not trained on. Of held-out pairs, what is
    # beyond is cut off.
    max_length: int | None = None
    cut: bool = False  # Whether pairs that are too long are cut in training too

    def __post_init__(self) -> None:
        self.check_counts("max_length", unit="tokens")

    def train_tokenizers(self, examples: Dataset, **options: Any) -> Tokenizers:
        return train_tokenizers(texts_of(self.sources, examples), texts_of(self.references, examples), **options)

    def encode(self, examples: Dataset, tokenizers: Tokenizers, *, training: bool = False, seed: int = 0) -> Dataset:
        source = to_ids(tokenizers.source, self.sources(examples))
        labels = ended(tokenizers.target, to_ids(tokenizers.target, self.references(examples)))
        kept = list(range(len(source)))
        if training and not self.cut:
            longest = [max(len(ids), len(target)) for ids, target in zip(source, labels, strict=True)]
            kept = short_enough(longest, self.max_length, examples)
        source, labels = ([ids[i][: self.max_length] for i in kept] for ids in (source, labels))
        lengths = [len(ids) + len(target) for ids, target in zip(source, labels, strict=True)]
        masks = [[1] * len(ids) for ids in source]
        columns = {"input_ids": source, "attention_mask": masks, "labels": labels, "length": lengths}
        return encoded(columns, examples, kept)

    def model_settings(self, tokenizers: Tokenizers) -> dict[str, Any]:
        return encoder_decoder_settings(tokenizers)


def encoder_decoder_settings(tokenizers: Tokenizers) -> dict[str, Any]:
    source, target = tokenizers.source, tokenizers.target
    bos_token_id = target.bos_token_id if target.bos_token_id is not None else target.pad_token_id
    return {
        "vocab_size": len(source),
        "decoder_vocab_size": len(target),
        "share_encoder_decoder_embeddings": tokenizers.joint,
        "pad_token_id": target.pad_token_id,
        "bos_token_id": bos_token_id,
        "eos_token_id": target.eos_token_id,
        "decoder_start_token_id": bos_token_id,
    }


@register_task
@dataclass(frozen=True)
class Translation(PairsTask):
    """Pairs of sentences; the first column is translated into the second, scored by BLEU and chrF.

    The corpus that ships is everyday English and Portuguese; no training pair gives away a held-out pair.
    """

    name = "translation"
    shipped = SHIPPED / "en_pt"
    main_score = "bleu"

    def score(self, predictions: Predictions, examples: Dataset, *, n_bootstrap: int = 1) -> Mapping[str, Score]:
        return translation_scores(predictions.outputs, self.references(examples), n_bootstrap=n_bootstrap)
