"""Masked language modelling, and masked next-token prediction mixed with causal language modelling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.base.errors import ConfigError
from zoo.data.tokenizers import Tokenizers, open_texts
from zoo.registry import VARIANTS, parse_name

from .scores import Outputs, Predictions, Score
from .task import register_task
from .text_task import RawTextTask

if TYPE_CHECKING:
    from datasets import Dataset
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerFast


MASK = "<mask>"


def in_place_of_words(tokenizer: PreTrainedTokenizerFast, texts: Iterable[str]) -> list[AddedToken]:
    """Special tokens that take the blank before them if words do."""
    from tokenizers import AddedToken

    cutting = tokenizer.backend_tokenizer.pre_tokenizer
    blank = cutting is not None and [span for _, span in cutting.pre_tokenize_str("a b")] == [(0, 1), (1, 3)]
    return [AddedToken(text, lstrip=blank, normalized=False, special=True) for text in texts]


@register_task
@dataclass(frozen=True)
class MaskedLanguageModeling(RawTextTask):
    """Raw text; a model predicts masked tokens from those around them, scored by perplexity.

    Of the chosen tokens, 80 % are masked, 10 % are replaced by random ones, and 10 % left as they are. Masks are drawn
    again in every epoch; held-out texts always have the same ones.
    """

    name = "masked-language-modeling"
    model_tasks = ("masked-lm",)
    scored_by = Outputs.PREDICTED

    predicts_earlier: ClassVar[bool] = False  # Whether a masked token is predicted one position earlier

    mlm_probability: float = 0.15  # Which part of the tokens is to be guessed

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_option("mlm_probability", 0 < self.mlm_probability < 1, "it lies between 0 and 1")

    def suits(self, name: str) -> bool:
        if not super().suits(name):
            return False
        spec = parse_name(name)
        settings = {**VARIANTS.get(spec.name).settings("masked-lm"), **spec.overrides}
        return bool(settings.get("masked_next_token")) == self.predicts_earlier

    def check_variant(self, name: str) -> None:
        if super().suits(name) and not self.suits(name):
            raise ConfigError(self.misplaced(name))
        super().check_variant(name)

    def misfit(self, config: Any) -> str | None:
        if bool(getattr(config, "masked_next_token", False)) == self.predicts_earlier:
            return None
        return self.misplaced(getattr(config, "variant", config.model_type))

    def misplaced(self, name: str) -> str:
        """The error of a model that predicts masked tokens elsewhere."""
        return (
            f"{name!r} predicts a masked token one position earlier (masked_next_token=true), and task {self.name!r} "
            "scores it where it is; task 'masked-next-token' suits it"
        )

    def train_tokenizers(self, examples: Dataset, **options: Any) -> Tokenizers:
        tokenizers = super().train_tokenizers(examples, **options)
        (mask,) = in_place_of_words(tokenizers.source, [MASK])
        tokenizers.source.add_special_tokens({"mask_token": mask})
        return tokenizers

    def blocks(self, examples: Dataset, tokenizers: Tokenizers, *, training: bool, seed: int) -> Any:
        from transformers import DataCollatorForLanguageModeling

        from .blocks import masked

        tokenizer = tokenizers.source
        if tokenizer.mask_token is None:
            raise ConfigError("the tokenizer has no mask_token, which masked language modelling needs")
        collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=self.mlm_probability)
        return self.drawn(examples, tokenizers, partial(masked, collator=collator), training=training, seed=seed)

    def score(self, predictions: Predictions, examples: Dataset, *, n_bootstrap: int = 1) -> Mapping[str, Score]:
        """Perplexity of the masked tokens, and the share of them that is guessed."""
        from .metrics import scores_of_tokens

        signature = f"masked:{predictions.num_labels}|block:{self.block_size}|mlm_probability:{self.mlm_probability}"
        return scores_of_tokens(predictions, signature, n_bootstrap=n_bootstrap)


@register_task
@dataclass(frozen=True)
class MaskedNextToken(MaskedLanguageModeling):
    """Raw text; a model predicts the next token, in some blocks each, and in the others masked ones from both sides.

    GPT-BERT (Charpentier and Samuel 2024): a masked token is predicted one position earlier, so that one model is a
    causal and a masked language model. It loads as both. The loss is that of each kind of block, weighted by their
    shares.
    """

    name = "masked-next-token"
    predicts_earlier = True
    shifted = True

    causal_share: float = 0.5  # Which part of the blocks is causal

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_option("causal_share", 0 <= self.causal_share <= 1, "it lies between 0 and 1")

    def misplaced(self, name: str) -> str:
        return (
            f"{name!r} predicts masked tokens where they are; task {self.name!r} takes gpt-bert-style, or "
            f"a variant for causal-lm and masked-lm with masked_next_token=true"
        )

    def train_tokenizers(self, examples: Dataset, **options: Any) -> Tokenizers:
        tokenizers = super().train_tokenizers(examples, **options)
        open_texts(tokenizers.source)
        return tokenizers

    @property
    def tokens_per_id(self) -> float:
        """The last id of a block is only a label."""
        return self.block_size / (self.block_size + 1)

    def blocks(self, examples: Dataset, tokenizers: Tokenizers, *, training: bool, seed: int) -> Any:
        from .blocks import PartlyCausalBlocks

        # The first id is no label, and the last one is only a label.
        longer: Any = replace(self, block_size=self.block_size + 1)
        blocks: Any = MaskedLanguageModeling.blocks(longer, examples, tokenizers, training=training, seed=seed)
        return PartlyCausalBlocks(blocks, self.causal_share)
