"""Find the longest context that can be trained in a given memory: one sequence, weights, gradients and Adam included.

    python scripts/bench/speed/memory.py                    # on the CPU, by the tensors that are allocated
    python scripts/bench/speed/memory.py --device cuda --gib 16 --width 768 --layers 12 --vocabulary 50304

The models are a GPT-2 of transformers and the zoo's with the same weights. No optimiser runs: its two states a weight
are added to what a forward and a backward pass need at their peak.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import zoo
from zoo.analysis.measuring import peak_bytes

STEP = 64
"""Lengths are multiples of it."""

FIRST = (4 * STEP, 8 * STEP)
"""Where the search begins."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gib", type=float, default=1.0, help="the memory in GiB (default: %(default)s)")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--vocabulary", type=int, default=16_000)
    parser.add_argument("--positions", type=int, default=16_384, help="rows of the table of positions")
    return parser.parse_args()


def longest(memory_of: Callable[[int], int], budget: float, most: int) -> int:
    """Find the longest context, a multiple of `STEP` up to `most`, that fits a budget of bytes; 0 where none does."""
    before, length = FIRST
    while length != before:
        slope = (memory_of(length) - memory_of(before)) / (length - before)
        # While gradients of weights need the most, memory has no slope.
        room = (budget - memory_of(length)) / slope if slope > 0 else length
        before, length = length, min(max(STEP, int((length + room) // STEP) * STEP), most)
    while length > 0 and memory_of(length) > budget:
        length -= STEP
    return length


def memory_of_training(model: Any, device: torch.device, **options: Any) -> Callable[[int], int]:
    """The bytes that training on one sequence of some length needs, as a function of the length."""
    weights = sum(parameter.nbytes for parameter in model.parameters())

    @cache
    def memory_of(length: int) -> int:
        ids = torch.full((1, length), 3, device=device)

        def step() -> None:
            model(input_ids=ids, labels=ids, use_cache=False, **options).loss.backward()

        model.zero_grad()
        return 3 * weights + peak_bytes(step, device)

    return memory_of


def main() -> None:
    arguments = parse_arguments()
    device = torch.device(arguments.device)
    config = GPT2Config(
        vocab_size=arguments.vocabulary,
        n_embd=arguments.width,
        n_layer=arguments.layers,
        n_head=arguments.width // 64,
        n_positions=arguments.positions,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    print(f"{arguments.gib:g} GiB, {arguments.layers} layers of width {arguments.width}, {device}")
    print(f"{'':36} {'longest':>8} {'ratio':>6} {'bytes a token':>14}")
    first = None
    for name, is_ours, checkpointed in (
        ("GPT2LMHeadModel", False, False),
        ("GPT2LMHeadModel, checkpointed", False, True),
        ("zoo, without logits", True, False),
        ("zoo, checkpointed, without logits", True, True),
    ):
        native = GPT2LMHeadModel(config)
        model = (zoo.convert(native) if is_ours else native).to(device).train()
        if checkpointed:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        memory_of = memory_of_training(model, device, **({"skip_logits": True} if is_ours else {}))
        length = longest(memory_of, arguments.gib * 2**30, arguments.positions)
        first = first or length
        slope = (memory_of(length) - memory_of(length // 2)) // (length - length // 2)
        print(f"{name:36} {length:8} {length / first:6.2f} {slope:14}", flush=True)


if __name__ == "__main__":
    main()
