"""What a model makes of examples, before it is scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Outputs(str, Enum):
    """How a task's outputs come about."""

    GENERATED = "generated"
    """The model writes them: `generate`."""
    PREDICTED = "predicted"
    """At each label, the id with the highest logit."""
    NONE = "none"
    """There are none; the loss says it all."""

    __str__ = str.__str__


@dataclass(frozen=True)
class Predictions:
    """What a model makes of examples.

    Attributes:
        loss: Cross-entropy per label, in nats.
        num_labels: Number of labels that the loss is the mean over, padding excluded.
        outputs: A text an example; empty where a task has no outputs.
        ids: Of predicted outputs, the ids at each example's labels. *Shape:* (num_labels_of_example,)
        labels: The ids that would have been right, likewise.
        probabilities: Of predicted outputs, the probability of each id. *Shape:* as ids
    """

    loss: float
    num_labels: int
    outputs: Sequence[str] = ()
    ids: Sequence[Any] = field(default=(), repr=False)
    labels: Sequence[Any] = field(default=(), repr=False)
    probabilities: Sequence[Any] = field(default=(), repr=False)
