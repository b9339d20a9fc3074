"""Where a loss without all logits pays: the measurement for LOGITS and FEW in zoo/fast/chunked_loss.py.

Every line is one size of the output projection, forward and backward: the milliseconds of one thread with all logits at
once, and with each number of them at one time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.fast.chunked_loss import chunked_loss

SIZES = ((500, 64, 100), (500, 64, 1000), (1280, 128, 2000), (1020, 512, 16_000), (4096, 512, 16_000))
"""Tokens, hidden size, vocabulary."""

LOGITS = (1 << 20, 1 << 22, 1 << 24, 1 << 26)


def milliseconds(step: Callable[[], Tensor], times: int = 5) -> float:
    """The median of the processor's time for a forward and a backward pass."""
    found = []
    for _ in range(times + 1):
        began = time.process_time()
        step().backward()
        found.append(time.process_time() - began)
    return statistics.median(found[1:]) * 1000


def main() -> None:
    torch.set_num_threads(1)
    print(f"{'tokens, width, vocabulary':28} {'at once':>9} {''.join(f'{logits:>12,}' for logits in LOGITS)}")
    for tokens, width, vocabulary in SIZES:
        head = torch.nn.Linear(width, vocabulary, bias=False)
        states = torch.randn(1, tokens, width, requires_grad=True)
        labels = torch.randint(vocabulary, (1, tokens))

        def plain(head: torch.nn.Linear = head, states: Tensor = states, labels: Tensor = labels) -> Tensor:
            return F.cross_entropy(head(states)[0], labels[0], reduction="sum")

        found = [milliseconds(plain)]
        for logits in LOGITS:
            chunk = max(1, logits // vocabulary)
            found.append(milliseconds(lambda: chunked_loss(states, labels, head, [head.weight], chunk)))  # noqa: B023
        print(f"{f'{tokens}, {width}, {vocabulary}':28} {found[0]:9.1f} {''.join(f'{ms:12.1f}' for ms in found[1:])}")


if __name__ == "__main__":
    main()
