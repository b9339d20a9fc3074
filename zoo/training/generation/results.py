"""What a model wrote."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Candidate:
    """One text that a model wrote."""

    text: str  # The text, without the prompt
    score: float | None = None  # Mean log-probability of its tokens in nats, the end included; None where nobody asked


@dataclass(frozen=True)
class Generation:
    """What a model wrote for one text."""

    prompt: str  # What it read
    candidates: tuple[Candidate, ...]  # What it wrote: `num_return_sequences` texts, of beam search the best one first

    @property
    def text(self) -> str:
        """The first candidate's text."""
        return self.candidates[0].text

    def to_dict(self) -> dict[str, Any]:
        """`prompt` and `candidates`, each with `text` and `score`."""
        return asdict(self)
