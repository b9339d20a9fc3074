"""Time to measure the costs of a model, compared with its training: the overhead of a run of `zoo compare`.

    python scripts/bench/overhead.py vanilla

Operations are counted before, once for all seeds, as a comparison does. All parts happen after training, never in it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from zoo.analysis.measuring import activation_bytes, decode_speed, gemm_limit, measure, prefill_speed
from zoo.analysis.measuring.measuring import SHORTEST, count_per_token
from zoo.data.tasks import TASKS
from zoo.training import train


def seconds_of(run: Callable[[], Any]) -> float:
    """The seconds that something takes."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def main() -> None:
    """Train, measure, and print how long both took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", default="vanilla")
    parser.add_argument("--steps", type=int, default=470, help="updates; by default six epochs, as in the recipe")
    arguments = parser.parse_args()
    result = train(arguments.name, "translation", max_steps=arguments.steps, progress=False)
    report, model, task = result.report, result.model, TASKS.get("translation")
    encoded: Any = task.encode(task.load().train.select(range(64)), result.tokenizers)
    names = ("input_ids", "attention_mask", "labels")
    batch = dict(task.collator(result.tokenizers)([{name: row[name] for name in names} for row in encoded]))
    parts = {
        "counting operations, once for all seeds": seconds_of(lambda: count_per_token(model, batch)),
        "the fastest products": seconds_of(lambda: gemm_limit(model.device, model.dtype)),
        "activations": seconds_of(lambda: activation_bytes(model, batch)),
        "reading, at least": seconds_of(lambda: prefill_speed(model, batch, SHORTEST)),
        "writing, at least": seconds_of(lambda: decode_speed(model, batch, SHORTEST)),
    }
    gemm_seconds, flops = parts["the fastest products"], count_per_token(model, batch)
    costs = measure(
        model,
        batch,
        training_tokens_per_second=report.train_tokens_per_second,
        training_seconds=report.train_seconds,
        flops=flops,
    )
    whole = costs.seconds + gemm_seconds  # which is known by now
    print(f"{arguments.name}, {arguments.steps} steps, {torch.get_num_threads()} threads")
    print(f"training {report.train_seconds:.1f} s, measuring {whole:.2f} s: {whole / report.train_seconds:.2%}")
    print(f"model-FLOPs utilisation {costs.model_flops_utilization:.1%}")
    for part, seconds in parts.items():
        print(f"  {part:42} {seconds:.2f} s")


if __name__ == "__main__":
    main()
