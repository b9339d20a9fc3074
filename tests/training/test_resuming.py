"""A run that was interrupted goes on as if nothing had happened."""

from __future__ import annotations

import shutil

import pytest
import torch
from safetensors.torch import load_file

from zoo.errors import ConfigError
from zoo.training import train
from zoo.training.saving import last_checkpoint


def test_a_resumed_run_ends_with_the_same_weights(few, tiny, tmp_path):
    """Interrupted in the middle of an epoch, with dropout, and once while a checkpoint was written."""
    arguments = {**tiny, "max_steps": 8, "save_strategy": "steps", "save_steps": 3, "save_total_limit": None}
    train("pre-norm", data=few, output_dir=tmp_path / "whole", **{**arguments, "save_strategy": "no"})
    train("pre-norm", data=few, output_dir=tmp_path / "again", resume=True, **arguments)
    checkpoints = tmp_path / "again-checkpoints"
    assert last_checkpoint(checkpoints) == str(checkpoints / "checkpoint-8")
    shutil.rmtree(checkpoints / "checkpoint-8")
    state = checkpoints / "checkpoint-6" / "trainer_state.json"
    state.write_text(state.read_text()[:100])
    assert last_checkpoint(checkpoints) == str(checkpoints / "checkpoint-3")
    resumed = train("pre-norm", data=few, output_dir=tmp_path / "again", resume=True, force=True, **arguments)
    whole, again = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "again"))
    assert resumed.report.steps == 8
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_without_a_folder_there_is_nothing_to_resume(few, tiny, tmp_path):
    assert last_checkpoint(tmp_path / "nowhere") is None
    with pytest.raises(ConfigError, match="without output_dir"):
        train("pre-norm", data=few, resume=True, **tiny)
