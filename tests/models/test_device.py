"""What a GPU would be asked for, on a machine without one: no mix of devices, the CPU's numbers, and few waits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from every_variant import ONE_TASK
from models.device_training import OPTIONS

from zoo.registry import VARIANTS as REGISTERED

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("device")]


ONE_OF_EACH = ("llama-style", "gpt2-style", "bert-style", "vanilla", "t5-style")
"""Variants that do without each other's parts; the others take a second or two each."""
VARIANTS = [name if name in ONE_OF_EACH else pytest.param(name, marks=pytest.mark.slow) for name in ONE_TASK]
HEADS = [(name, task) for name in ONE_TASK for task in REGISTERED.get(name).tasks if task != "feature-extraction"]
"""A body without a head has no loss; every head runs it."""
VARIANTS += [
    pytest.param(f"{name}/{task}", marks=pytest.mark.nightly) for name, task in HEADS if task != ONE_TASK[name]
]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> dict[str, dict[str, str]]:
    """What went wrong with each variant that is tried, in a process that has such a device."""
    cases = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    names = [case.params["variant"] for case in cases if case is not None and "variant" in case.params]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(Path(__file__).with_name("device_worker.py")), *names]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("variant", VARIANTS)
def test_training_and_writing_on_an_accelerator(outcomes: dict[str, dict[str, str]], variant: str) -> None:
    """Equal to the CPU, without a mix of devices, waiting no oftener than transformers' own class of the family."""
    assert not outcomes[variant]


def test_a_tensor_on_the_wrong_device_is_found(outcomes: dict[str, dict[str, str]]) -> None:
    assert "MixedDevicesError" in outcomes["made on the wrong device"]["training"]
    assert "device_worker.py" in outcomes["made on the wrong device"]["greedy"]


def test_waiting_for_the_device_is_found(outcomes: dict[str, dict[str, str]]) -> None:
    assert all("waits for the device" in outcomes["asked for a value"][what] for what in ("training", "greedy"))


@pytest.mark.parametrize("name", ["bert-style", "modernbert-style", "llama-style"])
def test_flash_waits_once_for_all_layers(outcomes: dict[str, dict[str, str]], name: str) -> None:
    """A padded batch trains as on eager attention on the CPU, and waits no oftener than transformers' ModernBERT."""
    assert not outcomes[f"flash of {name}"]


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_of_the_trainer(outcomes: dict[str, dict[str, str]], option: str) -> None:
    """Weights come out as on the CPU, without a mix of devices or a wait that transformers' trainer has not."""
    assert not outcomes[option]


@pytest.mark.parametrize("name", ["gpt2-style", "llama-style", "vanilla", "bert-style"])
def test_plans_and_preflights_foresee_what_is_allocated(outcomes: dict[str, dict[str, str]], name: str) -> None:
    """Weights, gradients, the optimiser's states, activations and logits; of two, with layers computed again."""
    memory = {what: int(size) for what, size in outcomes[f"memory of {name}"].items()}
    assert memory["found"] == pytest.approx(memory["planned"], rel=0.1)
    assert memory["found"] == pytest.approx(memory["preflight"], rel=0.1)
