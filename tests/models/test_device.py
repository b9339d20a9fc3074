"""What a GPU would be asked for, on a machine without one: no mix of devices, the CPU's numbers, and few waits."""

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from every_variant import ONE_TASK
from models.device_training import OPTIONS
from preloaded import run_python

from zoo.registry import VARIANTS

pytestmark = pytest.mark.thorough

ONE_OF_EACH = ("llama-style", "gpt2-style", "bert-style", "vanilla", "t5-style", "mixtral-style", "qwen3-next-style")
"""Variants that do without each other's parts; of the others, most take a second or two."""
HEADS = [f"{name}/{task}" for name in ONE_TASK for task in VARIANTS.get(name).tasks if task != "feature-extraction"]
"""A body without a head has no loss; every head runs it."""


def cases(kind: str, all_of_them: Iterable[str], by_default: Iterable[str]) -> Any:
    """Parametrizes a test by what the worker does; some of it is nightly."""
    chosen = list(by_default)
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(f"{kind} {what}", marks=[] if what in chosen else pytest.mark.nightly, id=what)
            for what in all_of_them
        ],
    )


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> dict[str, dict[str, str]]:
    """What was found of each case that is asked for, in one process that has such a device."""
    specs = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    asked = [spec.params["case"] for spec in specs if spec is not None]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = run_python([str(Path(__file__).with_name("device_worker.py")), *asked], env=environment)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


@cases("run", HEADS, [f"{name}/{ONE_TASK[name]}" for name in ONE_OF_EACH])
def test_training_and_writing_on_an_accelerator(outcomes: dict[str, dict[str, str]], case: str) -> None:
    """Equal to the CPU, without a mix of devices, waiting no oftener than transformers' own class of the family."""
    assert not outcomes[case]


@cases("trainer", [f"{option}/{name}" for name in ("llama-style", "bert-style", "vanilla") for option in OPTIONS],
       ["several/llama-style", "evaluation/llama-style"])  # fmt: skip
def test_every_option_of_the_trainer(outcomes: dict[str, dict[str, str]], case: str) -> None:
    """Weights come out as on the CPU, without a mix of devices or a wait that transformers' trainer has not."""
    assert not outcomes[case]


UNPADDED = [f"{name}/flash" for name in ("bert-style", "modernbert-style", "llama-style")]
UNPADDED += [f"{name}/sdpa" for name in ("bert-style", "modernbert-style", "llama-style", "marian-style")]


@cases("unpadded", UNPADDED, ["bert-style/flash", "llama-style/flash", "llama-style/sdpa", "marian-style/sdpa"])
def test_lengths_are_waited_for_once(outcomes: dict[str, dict[str, str]], case: str) -> None:
    """A padded batch trains without its padding as on eager attention, for no more waits than transformers needs."""
    assert not outcomes[case]


FORESEEN = ["gpt2-style/whole", "bert-style/again", "mixtral-style/whole", "llama-style/again", "vanilla/whole"]
FORESEEN += ["mixtral-style/again", "deepseek-moe/whole"]


@cases("memory", FORESEEN, ["gpt2-style/whole", "mixtral-style/again"])
def test_plans_and_preflights_foresee_what_is_allocated(outcomes: dict[str, dict[str, str]], case: str) -> None:
    """Weights, gradients, the optimiser's states, activations and logits; of some, with layers computed again."""
    memory = {what: int(size) for what, size in outcomes[case].items()}
    assert memory["found"] == pytest.approx(memory["planned"], rel=0.1)
    assert memory["found"] == pytest.approx(memory["preflight"], rel=0.1)


@cases("defect", ["made on the wrong device"], ["made on the wrong device"])
def test_a_tensor_on_the_wrong_device_is_found(outcomes: dict[str, dict[str, str]], case: str) -> None:
    assert "MixedDevicesError" in outcomes[case]["training"]
    assert "device_worker.py" in outcomes[case]["greedy"]


@cases("defect", ["asked for a value"], ["asked for a value"])
def test_waiting_for_the_device_is_found(outcomes: dict[str, dict[str, str]], case: str) -> None:
    assert all("waits for the device" in outcomes[case][what] for what in ("training", "greedy"))
