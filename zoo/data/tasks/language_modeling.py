"""Language modelling: predict the next token of raw text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.base.errors import ConfigError, InvalidChoiceError
from zoo.data.tokenizers import Tokenizers, leave_open

from .scores import Outputs, Predictions, Score, perplexity, unknown_in
from .task import register_task
from .text_task import RawTextTask, padding_of

if TYPE_CHECKING:
    from datasets import Dataset


PACKINGS = ("blocks", "documents")


@register_task
@dataclass(frozen=True)
class LanguageModeling(RawTextTask):
    """Raw text; a model predicts every token from those before it, scored by perplexity.

    A .txt file is one text. In the other formats, every row is a document, and an end-of-text token is between two.
    """

    name = "language-modeling"
    model_tasks = ("causal-lm",)
    shifted = True
    scored_by = Outputs.NONE

    # "blocks" cuts all documents as one row of tokens; "documents" packs whole documents into rows of `block_size`, the
    # longest first into the fullest row that has room, and none attends to another
    packing: str = "blocks"

    def __post_init__(self) -> None:
        super().__post_init__()
        InvalidChoiceError.check(self.packing, valid=PACKINGS, kind="packing")
        if self.packing == "documents" and (self.stride is not None or self.streaming):
            given = "streaming" if self.streaming else f"stride={self.stride}"
            raise ConfigError(f"{given} is for blocks, not for packed documents")

    def train_tokenizers(self, examples: Dataset, **options: Any) -> Tokenizers:
        tokenizers = super().train_tokenizers(examples, **options)
        leave_open(tokenizers.source)
        return tokenizers

    def blocks(self, examples: Any, tokenizers: Tokenizers, *, training: bool, seed: int) -> Any:
        from .blocks import TokenBlocks
        from .packing import PackedDocuments, ends_in, pack, packed_once
        from .prepared import PreparedTexts

        stride = self.stride if training else None
        least = self.block_size + 1 if stride is not None else 2
        ids: Any = self.row(examples, tokenizers, least=least, training=training, seed=seed)
        if self.packing == "blocks":
            return TokenBlocks(ids, self.block_size, stride)
        if isinstance(examples, PreparedTexts):
            segments = packed_once(ids, self.block_size, examples.folder)
        else:
            segments = pack([ends_in(ids, tokenizers.source.eos_token_id)], self.block_size)
        return PackedDocuments(ids, self.block_size, segments, padding_of(tokenizers))

    def score(self, predictions: Predictions, examples: Dataset, *, n_bootstrap: int = 1) -> Mapping[str, Score]:
        """Perplexity, and bits per byte, in which tokenizers can be compared that know all tokens.

        A signature with "lossy" is of a tokenizer that does not give the text back: fewer bits are enough for less.
        """
        text = "".join(examples["text"][:])
        num_bytes, lossy = len(text.encode()), "" if predictions.text in (None, text) else "|lossy"
        bits = predictions.loss * predictions.num_labels / math.log(2) / num_bytes
        packing = "" if self.packing == "blocks" else f"|packing:{self.packing}"
        read = f"block:{self.block_size}{unknown_in(predictions)}{packing}"
        signature = f"bytes:{num_bytes}|{read}{lossy}"
        return {
            "perplexity": perplexity(predictions.loss, f"tokens:{predictions.num_labels}|{read}"),
            "bits_per_byte": Score("Bits/byte", round(bits, 4), signature, higher_is_better=False),
        }
