"""Several processes come to what one comes to."""

import shutil
from pathlib import Path

import pytest
import torch
from preloaded import run_ranks
from safetensors.torch import load_file
from training.on_two import UNTIED, kinds, run

from zoo.base.errors import ConfigError
from zoo.training import train

SCRIPT = Path(__file__).with_name("on_two.py")


def forget(folder, step):
    """Leave a run as if it had been interrupted before this step."""
    shutil.rmtree(f"{folder}-checkpoints/checkpoint-{step}")


@pytest.mark.slow
def test_two_processes_come_to_what_one_comes_to(tmp_path):
    """DDP and FSDP2: losses, tokens, outputs, weights; checkpoints of two are resumed on one, and the other way."""
    one = run(tmp_path / "one", 1)
    whole = load_file(tmp_path / "one" / "model.safetensors")
    others = {"sharded": run(tmp_path / "untied", 1, **UNTIED), "kinds": kinds(1)}
    forget(tmp_path / "one", 6)
    run_ranks(2, [str(SCRIPT), str(tmp_path)])
    found = torch.load(tmp_path / "found.pt")
    forget(tmp_path / "two", 6)
    found["resumed on one"] = run(tmp_path / "two", 1, resume=True, force=True)
    for name, other in found.items():
        expected = others.get(name, one)
        assert other["losses"] == pytest.approx(expected["losses"], abs=1e-5), name
        assert other["heldout"] == pytest.approx(expected["heldout"], abs=1e-5), name
        assert other["outputs"] == expected["outputs"], name
    other_weights = load_file(tmp_path / "untied" / "model.safetensors")
    for folder, expected in (("one", whole), ("two", whole), ("sharded", other_weights)):
        weights = load_file(tmp_path / folder / "model.safetensors")
        for key, weight in expected.items():
            if key.endswith("k_proj.bias"):
                continue  # has no effect, so its gradient is rounding, of which Adam makes whole steps
            torch.testing.assert_close(weights[key], weight, msg=f"{folder}: {key}")


def test_shared_embeddings_cannot_be_sharded(few, tiny, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ConfigError, match="tie_word_embeddings=False"):
        train("pre-norm", data=few, **tiny)
