"""Where taking padding out pays: the measurement for SHORT, GAIN and SHARE in zoo/fast.

Every line is one shape of batch: how long a step takes with its padding, and how many times faster it is unpadded, with
the padding put back for attention, and with a call of attention a sequence.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from unittest.mock import patch

import torch
from torch import Tensor

import zoo
from zoo.fast.switches import fast_paths
from zoo.models import ZooPreTrainedModel

WIDTHS = (64, 128, 256, 512)
BATCHES = ((64, 2, 8), (64, 6, 16), (64, 20, 48), (16, 14, 128), (16, 100, 128), (8, 20, 256))
"""Numbers of sequences, with the shortest and the longest length."""

WAYS = {"with padding": ("never", 0), "padded for attention": ("always", 1 << 30), "by sequence": ("always", 0)}
"""A mode of unpadding, and the length below which sequences count as short."""


def best(run: Callable[[], object], times: int = 6) -> float:
    """The shortest time of several runs, in milliseconds."""
    run()
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds) * 1000


def measure(model: ZooPreTrainedModel, ids: Tensor, mask: Tensor, train: bool) -> list[float]:
    def step() -> None:
        with torch.set_grad_enabled(train):
            loss = model(input_ids=ids, attention_mask=mask, labels=ids).loss
        if train:
            loss.backward()

    found = []
    for mode, short in WAYS.values():
        with fast_paths(unpadding=mode), patch("zoo.fast.unpadding.SHORT", short):
            found.append(best(step))
    return found


def main() -> None:
    for width in WIDTHS:
        model = zoo.build(
            "pre-norm",
            "masked-lm",
            vocab_size=100,
            hidden_size=width,
            num_attention_heads=max(2, width // 64),
            intermediate_size=4 * width,
            num_hidden_layers=2,
            dropout=0.0,
        )
        for rows, shortest, longest in BATCHES:
            lengths = torch.randint(shortest, longest + 1, (rows,), generator=torch.Generator().manual_seed(0))
            lengths[0] = longest
            mask = (torch.arange(longest) < lengths[:, None]).long()
            ids = torch.randint(3, 100, mask.shape)
            for train in (True, False):
                plain, padded, by_sequence = measure(model.train(train), ids, mask, train)
                shape = f"width {width}, {rows} sequences of {shortest} to {longest}"
                gains = f"x {plain / padded:.2f} padded for attention, x {plain / by_sequence:.2f} by sequence"
                print(f"{shape}, {'training' if train else 'inference'}: {plain:.1f} ms, {gains}", flush=True)


if __name__ == "__main__":
    main()
