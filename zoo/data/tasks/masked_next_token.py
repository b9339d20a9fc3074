"""Masked next-token prediction mixed with causal language modelling, for one model of both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from zoo.base.errors import ConfigError
from zoo.data.tokenizers import Tokenizers, open_texts

from .masked_language_modeling import MaskedLanguageModeling
from .task import TASKS
from .text_task import padding_of

if TYPE_CHECKING:
    from datasets import Dataset

    from .blocks import PartlyCausalCollator


@dataclass(frozen=True)
class MaskedNextToken(MaskedLanguageModeling):
    """Raw text; a model predicts the next token, in some blocks each, and in the others masked ones from both sides.

    GPT-BERT (Charpentier and Samuel 2024): a masked token is predicted one position earlier, so that one model is a
    causal and a masked language model. It loads as both. The loss is that of each kind of block, weighted by their
    shares.
    """

    name = "masked-next-token"

    causal_share: float = 0.5  # Which part of the blocks is causal

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.causal_share <= 1:
            raise ConfigError(f"causal_share={self.causal_share!r} is not valid; it lies between 0 and 1")

    def check_variant(self, name: str) -> None:
        """Refuse a variant that is no causal and masked model at once. Arguments as in the base class."""
        super().check_variant(name)
        from zoo.registry import VARIANTS, parse_name

        spec = parse_name(name)
        variant = VARIANTS.get(spec.name)
        if not {**variant.settings("masked-lm"), **spec.overrides}.get("masked_next_token"):
            raise ConfigError(
                f"{name!r} predicts masked tokens where they are; task {self.name!r} takes gpt-bert-style, or "
                f"a variant for causal-lm and masked-lm with masked_next_token=true"
            )

    def train_tokenizers(self, examples: Dataset, **options: Any) -> Tokenizers:
        """Train a tokenizer that has a mask and begins every text. Arguments as in the base class."""
        tokenizers = super().train_tokenizers(examples, **options)
        open_texts(tokenizers.source)
        return tokenizers

    def encode(self, examples: Dataset, tokenizers: Tokenizers, *, training: bool = False, seed: int = 0) -> Any:
        """Turn texts into blocks, causal and masked ones. Arguments as in the base class."""
        from .blocks import PartlyCausalBlocks
        from .mixing import MixedTexts

        if isinstance(examples, MixedTexts):
            return examples.blocks(partial(self.encode, tokenizers=tokenizers, training=training, seed=seed))
        # The first id is no label, and the last one is only a label.
        longer: Any = replace(self, block_size=self.block_size + 1)
        blocks: Any = MaskedLanguageModeling.encode(longer, examples, tokenizers, training=training, seed=seed)
        return PartlyCausalBlocks(blocks, self.causal_share)

    def collator(self, tokenizers: Tokenizers) -> PartlyCausalCollator:
        """Make what puts blocks into batches. Arguments as in the base class."""
        from .blocks import PartlyCausalCollator

        return PartlyCausalCollator(padding_of(tokenizers))


TASKS.register(MaskedNextToken.name, MaskedNextToken())
