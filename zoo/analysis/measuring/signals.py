"""Signal sizes of a new model: the residual stream, and what every sublayer adds to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from zoo.analysis.inputs import inputs_of
from zoo.building.builder import build
from zoo.models.residual import Residual

LENGTH, BATCH_SIZE = 32, 4  # Of the batch of random tokens that is read


@dataclass(frozen=True)
class Signal:
    """Input and branch of one residual connection."""

    path: str  # Its name in the model
    stream: float  # Root mean square of the stream that it reads
    branch: float  # Root mean square of what it adds, after its norm, scale and dropout

    @property
    def share(self) -> float:
        """The size of the branch relative to the stream."""
        return self.branch / self.stream


def measure_signals(name: str, task: str | None = None, **settings: Any) -> list[Signal]:
    """Signals of residual connections of a new model on random tokens, the first of one that is applied repeatedly."""
    model = build(name, task, seed=0, **settings).eval()
    config = model.config
    limit = min(config.vocab_size, config.decoder_vocab_size or config.vocab_size)
    ids = torch.randint(min(3, limit - 1), limit, (BATCH_SIZE, LENGTH), generator=torch.Generator().manual_seed(0))
    if config.max_position_embeddings:
        ids = ids[:, : config.max_position_embeddings]
    with recorded(model) as signals, torch.no_grad():
        model(**inputs_of(model, ids))
    return list({signal.path: signal for signal in reversed(signals)}.values())[::-1]


@contextmanager
def recorded(model: PreTrainedModel) -> Iterator[list[Signal]]:
    """Collect the signals of every residual connection that a forward passes."""
    found: list[Signal] = []
    with ExitStack() as hooks:
        for path, module in model.named_modules():
            if isinstance(module, Residual):
                hooks.enter_context(module.register_forward_pre_hook(partial(note, path, module, found)))
        yield found


def note(path: str, module: Residual, found: list[Signal], _: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Note the stream, and the branch as it is when it has passed the connection's modules."""
    stream, sublayer, *others = arguments

    def noting(*inputs: Any, **named: Any) -> Any:
        output = sublayer(*inputs, **named)
        branch = output[0] if isinstance(output, tuple) else output
        branch = module.dropout(module.scale(module.norm_branch(branch)))
        found.append(Signal(path, size(stream), size(module.added(module.skip(stream), branch))))
        return output

    return (stream, noting, *others)


def size(values: Tensor) -> float:
    """The root mean square of values."""
    return float(values.detach().float().square().mean().sqrt())
