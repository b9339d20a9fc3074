"""Span corruption: an encoder-decoder writes the spans of raw text that its input lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any

from zoo.base.errors import ConfigError
from zoo.data.tokenizers import Tokenizers

from .masked_language_modeling import in_place_of_words
from .pairs import encoder_decoder_settings
from .scores import Outputs, Predictions, Score
from .task import register_task
from .text_task import RawTextTask

if TYPE_CHECKING:
    from datasets import Dataset

    from .blocks import DrawnBlocks

SENTINEL = "<extra_id_{}>"  # Tokens in the place of spans, by number, as T5's tokenizers have them
LEAST_SENTINELS = 100  # Sentinels of a tokenizer, more where a block has more spans


@register_task
@dataclass(frozen=True)
class SpanCorruption(RawTextTask):
    """Raw text; a model reads blocks that lack some spans, and writes the spans, scored by perplexity.

    T5 (Raffel et al. 2020, section 3.1.4). Spans are drawn again in every epoch; held-out texts always lack the same.
    """

    name = "span-corruption"
    model_tasks = ("seq2seq-lm",)
    scored_by = Outputs.PREDICTED

    noise_density: float = 0.15  # Which part of the tokens is in the spans
    mean_span_length: float = 3.0  # Mean number of tokens of a span

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_option("noise_density", 0 < self.noise_density < 1, "it lies between 0 and 1")
        self.check_option("mean_span_length", self.mean_span_length >= 1, "it is at least 1 token")
        self.check_option("block_size", self.block_size >= 2, "a token stays and one is in a span")

    def counts(self, length: int) -> tuple[int, int]:
        """Number of tokens in the spans of a block, and number of spans."""
        missing = min(max(round(length * self.noise_density), 1), length - 1)
        return missing, min(max(round(missing / self.mean_span_length), 1), missing, length - missing)

    @property
    def tokens_per_id(self) -> float:
        """Each span has a sentinel on both sides, and each side an end."""
        return 1 + 2 * (self.counts(self.block_size)[1] + 1) / self.block_size

    def train_tokenizers(self, examples: Dataset, **options: Any) -> Tokenizers:
        tokenizers = super().train_tokenizers(examples, **options)
        needed = max(LEAST_SENTINELS, self.counts(self.block_size)[1])
        mask, *others = in_place_of_words(tokenizers.source, map(SENTINEL.format, range(needed)))
        # The first sentinel is the mask by which encoder-decoders are scored.
        tokenizers.source.add_special_tokens({"mask_token": mask, "extra_special_tokens": others})
        return tokenizers

    def blocks(self, examples: Dataset, tokenizers: Tokenizers, *, training: bool, seed: int) -> DrawnBlocks:
        import numpy as np

        from .blocks import without_spans

        tokenizer, needed = tokenizers.source, self.counts(self.block_size)[1]
        vocabulary, names = tokenizer.get_vocab(), map(SENTINEL.format, count())
        sentinels = [vocabulary[name] for name in takewhile(vocabulary.__contains__, names)]
        if len(sentinels) < needed:
            problem = f"the tokenizer has {len(sentinels)} sentinels ({SENTINEL.format(0)}, {SENTINEL.format(1)}, ...)"
            raise ConfigError(f"{problem}, and block_size={self.block_size} needs {needed}")
        marks = np.array(sentinels[:needed])
        draw = partial(without_spans, counts=self.counts, sentinels=marks, end=tokenizer.eos_token_id)
        return self.drawn(examples, tokenizers, draw, training=training, seed=seed, shortest=2)

    def model_settings(self, tokenizers: Tokenizers) -> dict[str, Any]:
        return encoder_decoder_settings(tokenizers)

    def score(self, predictions: Predictions, examples: Dataset, *, n_bootstrap: int = 1) -> Mapping[str, Score]:
        """Perplexity of the spans, their sentinels and ends included, and the share of these tokens that is guessed."""
        from .metrics import scores_of_tokens

        read = f"block:{self.block_size}|noise:{self.noise_density}|span:{self.mean_span_length}"
        return scores_of_tokens(predictions, f"spans:{predictions.num_labels}|{read}", n_bootstrap=n_bootstrap)
