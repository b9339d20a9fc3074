"""What a training run leaves: the model, and the numbers."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel

from zoo.data.tasks import Score, Tokenizers

from .record import RunRecord

if TYPE_CHECKING:
    from zoo.hub import PushReport


@dataclass(frozen=True)
class TrainingReport:
    """The numbers of a training run.

    Attributes:
        variant: The variant's name with its settings, or the model's class.
        task: The task's name.
        seed: The seed of weights, dropout and data.
        device: What it ran on.
        num_devices: On how many of them.
        num_parameters: Every shared parameter counted once.
        train_examples: Number of examples trained on.
        heldout_examples: Number of examples evaluated on.
        steps: Number of updates.
        best_step: After which of them the model was best and is kept, None where the last one is kept.
        epochs: How often the data was seen.
        train_tokens: Tokens trained on, source and target ones, padding excluded; also those before an interruption.
        train_seconds: Wall-clock time of training alone, likewise; writing checkpoints is left out.
        train_loss: The last logged training loss; smoothed if the labels were.
        heldout_loss: Cross-entropy per target token, in nats, without label smoothing.
        scores: Scores of the generated outputs.
        evaluation_seconds: Wall-clock time of loss and generation on the held-out examples.
        peak_memory: Bytes at most in use while training: of the GPU, or of the whole process on a CPU.
        history: What was logged of the training loss, a dictionary a step, with the `tokens` and `seconds` so far.
        evaluations: What was logged of the held-out loss while training, likewise.
        average: Averaged weights: `kind`, number of `updates`, `heldout_loss` and `scores`; None for none.
        examples_per_update: Batch size of all devices together, over accumulated steps; 0 where it was not noted.
        mixture: Of a mixture, the share of the blocks and the epochs of each source.
    """

    variant: str
    task: str
    seed: int
    device: str
    num_devices: int
    num_parameters: int
    train_examples: int
    heldout_examples: int
    steps: int
    best_step: int | None
    epochs: float
    train_tokens: int
    train_seconds: float
    train_loss: float
    heldout_loss: float
    scores: dict[str, Score]
    evaluation_seconds: float
    peak_memory: int | None
    history: list[dict[str, float]]
    evaluations: list[dict[str, float]] = field(default_factory=list)
    examples_per_update: int = 0
    average: dict[str, Any] | None = None
    mixture: dict[str, dict[str, float]] | None = None

    @property
    def train_tokens_per_second(self) -> float:
        """Source and target tokens a second while training."""
        return self.train_tokens / self.train_seconds

    def to_dict(self) -> dict[str, Any]:
        """All fields, and the speed, as plain data."""
        return {**asdict(self), "train_tokens_per_second": self.train_tokens_per_second}


@dataclass(frozen=True)
class TrainingResult:
    """A trained model.

    Attributes:
        model: The model, in evaluation mode.
        tokenizers: What it reads and writes with.
        outputs: What it wrote for the held-out examples, in their order.
        report: The numbers.
        run: What was run.
        pushed: What was pushed to the Hub, if anything was.
    """

    model: PreTrainedModel
    tokenizers: Tokenizers
    outputs: list[str]
    report: TrainingReport
    run: RunRecord
    pushed: PushReport | None = None


def peak_memory(device: torch.device) -> int | None:
    """Measure how much memory has been in use at most."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
