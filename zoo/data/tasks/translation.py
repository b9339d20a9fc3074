"""Translation: pairs of sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .pairs import PairsTask
from .predictions import Predictions
from .scores import Score, translation_scores
from .sources import SHIPPED
from .task import TASKS

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class Translation(PairsTask):
    """Pairs of sentences; the first column is translated into the second, and BLEU and chrF say how well.

    What ships is a corpus of everyday English and Portuguese, whose held-out pairs no training pair gives away.
    """

    name = "translation"
    shipped = SHIPPED / "en_pt"
    main_score = "bleu"

    def score(self, predictions: Predictions, examples: Dataset, *, n_bootstrap: int = 1) -> Mapping[str, Score]:
        """BLEU and chrF. Arguments as in the base class."""
        return translation_scores(predictions.outputs, self.references(examples), n_bootstrap=n_bootstrap)


TASKS.register(Translation.name, Translation())
