"""Small configurations, random weights and exact comparisons for tests of single parts."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from zoo.models import ZooConfig
from zoo.testing import CHECKS, Subject, new_subject

WIDTH, HEADS, LENGTH = 12, 3, 7
HEAD = WIDTH // HEADS
THROUGH_FLOAT32 = 2e-5  # Tolerance where a class of transformers computes norms in float32


def config(**settings: Any) -> ZooConfig:
    sizes: dict[str, Any] = {
        "vocab_size": 11,
        "hidden_size": WIDTH,
        "num_attention_heads": HEADS,
        "intermediate_size": 10,
    }
    made = ZooConfig(**{**sizes, "dropout": 0.0, **settings})
    made._attn_implementation = "eager"
    return made


def randomized(module: torch.nn.Module, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.double().parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.7
    return module.eval()


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def close(got: Tensor, expected: Any, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(
        got.detach(), torch.as_tensor(expected, dtype=torch.float64), atol=tolerance, rtol=tolerance
    )


def run_checks(name: str, task: str, checks: Iterable[str]) -> Subject:
    """Run those of some checks of `zoo.testing` on a model that apply to its stack and task."""
    subject = new_subject(name, task)
    for check in map(CHECKS.get, checks):
        if subject.stack in check.stacks and task in check.tasks:
            check.function(subject)
    return subject
