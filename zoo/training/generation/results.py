"""What a model wrote."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Candidate:
    """One text that a model wrote.

    Attributes:
        text: The text, without the prompt.
        score: Mean log-probability of its tokens in nats, the end included; None where nobody asked.
    """

    text: str
    score: float | None = None


@dataclass(frozen=True)
class Generation:
    """What a model wrote for one text.

    Attributes:
        prompt: What it read.
        candidates: What it wrote: `num_return_sequences` texts, of beam search the best one first.
    """

    prompt: str
    candidates: tuple[Candidate, ...]

    @property
    def text(self) -> str:
        """The first candidate's text."""
        return self.candidates[0].text

    def to_dict(self) -> dict[str, Any]:
        """`prompt` and `candidates`, each with `text` and `score`."""
        return asdict(self)
