"""A training run that ends on the Hub, as a user types it, with a tracker's log next to the model."""

from pathlib import Path

import pytest
from preloaded import run_python
from safetensors.torch import load

from .conftest import WRITE, environment
from .loopback import LoopbackHub

pytestmark = pytest.mark.thorough

COMMAND = (
    "train pre-norm@tiny --task copy:train_examples=64,heldout_examples=16 --max_steps 2 --quiet "
    "--training logging_steps=1 --report_to tensorboard --checkpoint-at 50 --push org/copies"
)


def test_a_run_ends_on_the_hub(hub: LoopbackHub, tmp_path: Path) -> None:
    done = run_python(
        ["-m", "zoo", *COMMAND.split(), "-o", str(tmp_path / "model")],
        env=environment(hub, tmp_path / "home", HF_TOKEN=WRITE),
    )
    assert done.returncode == 0, done.stderr
    pushed = hub.storage.contents("org/copies")
    assert {"config.json", "tokenizer.json", "README.md"} <= set(pushed)
    assert load(pushed["model.safetensors"]).keys() == load((tmp_path / "model/model.safetensors").read_bytes()).keys()
    card = pushed["README.md"].decode()
    assert "model-index" in card and "Exact match" in card
    assert hub.storage.repo("org/copies")["refs"].keys() == {"main", "chck_50"}
    assert "org/copies" in done.stdout + done.stderr
    assert list((tmp_path / "model-logs").glob("events.out.tfevents.*"))
