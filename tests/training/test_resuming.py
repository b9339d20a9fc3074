"""A run that was interrupted goes on as if nothing had happened."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from zoo.errors import ConfigError, OutputExistsError
from zoo.training import TrainingError, train
from zoo.training.saving import last_checkpoint
from zoo.training.trainer import ZooTrainer


@pytest.mark.slow
def test_killed_runs_end_with_the_weights_of_a_whole_one(tmp_path):
    """Killed at any step, killed while a checkpoint is written, stopped by a full disk; dropout, full determinism."""
    script = Path(__file__).with_name("interrupted.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(script), str(tmp_path)]
    outcome = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert outcome.returncode == 0 and "all equal" in outcome.stdout, outcome.stdout + outcome.stderr


def test_what_cannot_be_resumed(few, tiny, tmp_path):
    assert last_checkpoint(tmp_path / "nowhere") is None
    with pytest.raises(ConfigError, match="without output_dir"):
        train("pre-norm", data=few, resume=True, **tiny)
    folder = tmp_path / "model"
    train("pre-norm", data=few, output_dir=folder, resume=True, **tiny)
    with pytest.raises(ConfigError, match="another model: its position is 'learned', where this one's is 'rotary'"):
        train("pre-norm:position=rotary", data=few, output_dir=folder, resume=True, force=True, **tiny)
    (folder / "config.json").unlink()
    (folder / "model.safetensors").unlink()
    for file in folder.iterdir():
        file.unlink()
    with pytest.raises(OutputExistsError, match="--resume"):
        train("pre-norm", data=few, output_dir=folder, save_strategy="epoch", **tiny)


def test_a_loss_that_is_no_number_leaves_the_last_good_checkpoint(few, tiny, tmp_path, monkeypatch):
    compute_loss = ZooTrainer.compute_loss

    def spoiled(trainer, *args, **kwargs):
        loss = compute_loss(trainer, *args, **kwargs)
        return loss * torch.nan if trainer.state.global_step == 3 and trainer.model.training else loss

    monkeypatch.setattr(ZooTrainer, "compute_loss", spoiled)
    folder = tmp_path / "model"
    arguments = {**tiny, "save_strategy": "steps", "save_steps": 2, "logging_steps": 100}
    with pytest.raises(TrainingError, match="the loss is nan at step 4; .*checkpoint-2 is the last good checkpoint"):
        train("pre-norm", data=few, output_dir=folder, **arguments)
    assert [path.name for path in Path(f"{folder}-checkpoints").iterdir()] == ["checkpoint-2"]


def test_weights_that_are_no_numbers_are_not_saved(few, tiny, tmp_path, monkeypatch):
    def spoil(trainer, *args):
        if trainer.state.global_step == 1:
            trainer.model.model.encoder.layers[0].mlp.up_proj.weight.data[0, 0] = torch.inf
        return step(trainer, *args)

    step = ZooTrainer.training_step
    monkeypatch.setattr(ZooTrainer, "training_step", spoil)
    monkeypatch.setattr("zoo.training.guard.LossGuard.check", lambda *args: None)
    with pytest.raises(TrainingError, match="no numbers after step 2"):
        train("pre-norm", data=few, output_dir=tmp_path / "model", save_strategy="steps", save_steps=2, **tiny)
    assert not list((tmp_path / "model-checkpoints").iterdir())
