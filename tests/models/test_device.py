"""What a GPU would be asked for, on a machine without one: no mix of devices, the CPU's numbers, and few waits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from every_variant import ONE_TASK

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("device")]


ONE_OF_EACH = ("llama-style", "gpt2-style", "bert-style", "vanilla", "t5-style")
"""Variants that do without each other's parts; the others take a second or two each."""
NAMES = [name if name in ONE_OF_EACH else pytest.param(name, marks=pytest.mark.slow) for name in ONE_TASK]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> dict[str, dict[str, str]]:
    """What went wrong with each variant that is tried, in a process that has such a device."""
    cases = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    names = [case.params["name"] for case in cases if case is not None]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(Path(__file__).with_name("device_worker.py")), *names]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_training_and_writing_on_an_accelerator(outcomes: dict[str, dict[str, str]], name: str) -> None:
    """Equal to the CPU, without a mix of devices, waiting no oftener than transformers' own class of the family."""
    assert not outcomes[name]


def test_a_tensor_on_the_wrong_device_is_found(outcomes: dict[str, dict[str, str]]) -> None:
    assert "MixedDevicesError" in outcomes["made on the wrong device"]["training"]
    assert "device_worker.py" in outcomes["made on the wrong device"]["greedy"]


def test_waiting_for_the_device_is_found(outcomes: dict[str, dict[str, str]]) -> None:
    assert all("waits for the device" in outcomes["asked for a value"][what] for what in ("training", "greedy"))


@pytest.mark.parametrize("name", ["gpt2-style", "llama-style", "vanilla", "bert-style"])
def test_a_plan_foresees_what_is_allocated(outcomes: dict[str, dict[str, str]], name: str) -> None:
    """Weights, gradients, the optimiser's states, activations and logits; of two, with layers computed again."""
    memory = {what: int(size) for what, size in outcomes[f"memory of {name}"].items()}
    assert memory["found"] == pytest.approx(memory["planned"], rel=0.1)
