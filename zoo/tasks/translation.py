"""Translation: pairs of sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from datasets import Dataset
from transformers import DataCollatorForSeq2Seq

from .predictions import Predictions
from .scores import Score, translation_scores
from .sources import SHIPPED
from .tables import Kind
from .task import TASKS, DataTask
from .tokenizers import Tokenizers, train_tokenizers


@dataclass(frozen=True)
class Translation(DataTask):
    """Pairs of sentences; the first column is translated into the second, and BLEU and chrF say how well.

    What ships is a corpus of everyday English and Portuguese, whose held-out pairs no training pair gives away.
    """

    name = "translation"
    model_task = "seq2seq-lm"
    shipped = SHIPPED / "en_pt"
    kinds = (Kind.SOURCE, Kind.SOURCE)
    main_score = "bleu"

    def train_tokenizers(self, examples: Dataset, **options: Any) -> Tokenizers:
        """Train the tokenizers of both languages. Arguments as in the base class."""
        return train_tokenizers(self.sources(examples), self.references(examples), **options)

    def encode(self, examples: Dataset, tokenizers: Tokenizers, *, training: bool = False, seed: int = 0) -> Dataset:
        """Turn sentences into ids. Arguments as in the base class."""
        source = tokenizers.source(self.sources(examples))
        labels = tokenizers.target(self.references(examples))["input_ids"]
        lengths = [len(ids) + len(target) for ids, target in zip(source["input_ids"], labels, strict=True)]
        columns = {"input_ids": source["input_ids"], "attention_mask": source["attention_mask"]}
        return Dataset.from_dict({**columns, "labels": labels, "length": lengths})

    def collator(self, tokenizers: Tokenizers) -> DataCollatorForSeq2Seq:
        """Make transformers' collator for pairs. Arguments as in the base class."""
        return DataCollatorForSeq2Seq(tokenizers.source)

    def model_settings(self, tokenizers: Tokenizers) -> dict[str, Any]:
        """Vocabularies and special tokens of both sides. Arguments as in the base class."""
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

    def sources(self, examples: Dataset) -> list[str]:
        """The first column. Arguments as in the base class."""
        return list(examples[examples.column_names[0]])

    def references(self, examples: Dataset) -> list[str]:
        """The second column. Arguments as in the base class."""
        return list(examples[examples.column_names[1]])

    def score(self, predictions: Predictions, examples: Dataset, *, n_bootstrap: int = 1) -> Mapping[str, Score]:
        """BLEU and chrF. Arguments as in the base class."""
        return translation_scores(predictions.outputs, self.references(examples), n_bootstrap=n_bootstrap)


TASKS.register(Translation.name, Translation())
