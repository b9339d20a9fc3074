"""A run that was interrupted goes on as if nothing had happened."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from preloaded import run_fork
from safetensors.torch import load_file
from transformers import TrainerCallback

from zoo.base.errors import ConfigError, OutputExistsError
from zoo.base.folders import read_result
from zoo.data.tasks import Splits
from zoo.training import ScoringError, TrainingError, checkpoints, train
from zoo.training.checkpoints import CheckpointWarning, last_checkpoint
from zoo.training.evaluating_trainer import EvaluatingTrainer
from zoo.training.trainer import ZooTrainer

SAVING = {"resume": True, "save_strategy": "steps", "save_steps": 3, "max_steps": 8, "logging_steps": 2}
"""Eight steps of five an epoch, the last checkpoint in the middle of one."""


@pytest.mark.slow
def test_killed_runs_end_with_the_weights_of_a_whole_one(tmp_path):
    """Killed at any step, killed while a checkpoint is written, stopped by a full disk; dropout, full determinism."""
    script = Path(__file__).with_name("interrupted.py")
    outcome = run_fork([str(script), str(tmp_path)], env=os.environ)
    assert outcome.returncode == 0 and "all equal" in outcome.stdout, outcome.stdout + outcome.stderr


@pytest.mark.slow
@pytest.mark.nightly
def test_runs_killed_at_random_moments_end_as_whole_ones(tmp_path):
    script = Path(__file__).with_name("kills.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(script), str(tmp_path), "--kills", "3", "--seed", str(os.getpid())]
    outcome = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.fixture(scope="module")
def finished(few, tiny, tmp_path_factory):
    """A run that came to its end, with its checkpoints at steps 6 and 8: they were not kept for resuming alone."""
    folder = tmp_path_factory.mktemp("finished") / "model"
    kept = {**tiny, **SAVING, "resume": False}
    train("pre-norm:dropout=0.2", data=few, output_dir=folder, save_total_limit=2, **kept)
    return folder


@pytest.fixture
def interrupted(finished, tmp_path):
    """The same run as it is when it was killed before its model was saved."""
    shutil.copytree(f"{finished}-checkpoints", tmp_path / "model-checkpoints")
    return tmp_path / "model"


def outcome(folder):
    """What two runs that are the same have in common."""
    report = read_result(folder)["report"]
    history = [[entry[key] for key in ("step", "loss", "learning_rate", "tokens")] for entry in report["history"]]
    return history, *(report[name] for name in ("steps", "train_tokens", "heldout_loss", "train_loss"))


def assert_same(folder, other):
    assert outcome(folder) == outcome(other)
    weights, wanted = (load_file(place / "model.safetensors") for place in (folder, other))
    assert all(torch.equal(weights[name], wanted[name]) for name in wanted)


def test_a_run_killed_after_its_last_step_trains_no_other(finished, interrupted, few, tiny, monkeypatch):
    monkeypatch.setattr(ZooTrainer, "training_step", lambda *args: pytest.fail("there was a step left"))
    train("pre-norm:dropout=0.2", data=few, output_dir=interrupted, **{**tiny, **SAVING})
    assert_same(interrupted, finished)


def test_a_run_that_evaluates_by_steps_saves_then_and_counts_its_training_alone(few, tiny, tmp_path, monkeypatch):
    evaluate = EvaluatingTrainer.evaluation_loop
    monkeypatch.setattr(EvaluatingTrainer, "evaluation_loop", lambda *a, **kw: time.sleep(0.5) or evaluate(*a, **kw))
    best = {"eval_strategy": "steps", "eval_steps": 1, "load_best_model_at_end": True}
    report = train("pre-norm", data=few, output_dir=tmp_path / "model", resume=True, **tiny, **best).report
    assert report.best_step and len(report.evaluations) == report.steps == 4 and report.train_seconds < 4 * 0.5


@pytest.mark.thorough
def test_a_run_that_had_stopped_early_goes_no_further(few, tiny, tmp_path, monkeypatch):
    stopping = {**tiny, **SAVING, "max_steps": 40, "early_stopping_patience": 1, "learning_rate": 0.5}
    report = train("pre-norm", data=few, output_dir=tmp_path / "model", **{**stopping, "resume": False}).report
    assert report.steps < 40 and report.steps % 5
    shutil.rmtree(tmp_path / "model")
    monkeypatch.setattr(ZooTrainer, "training_step", lambda *args: pytest.fail("there was a step left"))
    again = train("pre-norm", data=few, output_dir=tmp_path / "model", **stopping).report
    assert (again.steps, again.best_step, again.heldout_loss) == (report.steps, report.best_step, report.heldout_loss)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("file", "spoil", "message"),
    [
        ("model.safetensors", lambda file: os.truncate(file, 1000), "model.safetensors is not what was written"),
        ("optimizer.pt", lambda file: os.truncate(file, 0), "optimizer.pt is not what was written"),
        ("optimizer.pt", Path.unlink, "optimizer.pt is missing"),
        ("rng_state.pth", Path.unlink, "rng_state.pth is missing"),
        ("trainer_state.json", lambda file: file.write_text(file.read_text()[:100]), "not what was written"),
        ("run.json", Path.unlink, "never finished"),
        ("run.json", lambda file: file.write_text("[]"), "run.json cannot be read"),
    ],
)
def test_a_checkpoint_is_whole_only_if_every_file_is(finished, interrupted, few, tiny, file, spoil, message):
    spoil(Path(f"{interrupted}-checkpoints", "checkpoint-8", file))
    with pytest.warns(CheckpointWarning, match=rf"checkpoint-8 is passed over: .*{message}"):
        train("pre-norm:dropout=0.2", data=few, output_dir=interrupted, **{**tiny, **SAVING})
    assert_same(interrupted, finished)


def test_without_a_whole_checkpoint_a_run_restarts_with_a_message(finished, interrupted, few, tiny):
    for seal in Path(f"{interrupted}-checkpoints").glob("*/run.json"):
        seal.unlink()
    with pytest.warns(CheckpointWarning, match="the run begins from the start"):
        train("pre-norm:dropout=0.2", data=few, output_dir=interrupted, **{**tiny, **SAVING})
    assert_same(interrupted, finished)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "its seed is 0, not 1"),
        ({"learning_rate": 0.5}, r"its arguments.learning_rate is 0.003, not 0.5"),
        ({"max_steps": 9}, "its arguments.max_steps is 8, not 9"),
        ({"tokenizer": {"kind": "word", "min_frequency": 1, "lower_case": True}}, "its tokenizer.lower_case"),
    ],
)
def test_another_run_does_not_go_on_from_the_checkpoints(interrupted, few, tiny, change, message):
    before = sorted(Path(f"{interrupted}-checkpoints").rglob("*"))
    with pytest.raises(ConfigError, match=f"{message}.*; give the settings of the interrupted run|another model"):
        train("pre-norm:dropout=0.2", data=few, output_dir=interrupted, **{**tiny, **SAVING, **change})
    assert sorted(Path(f"{interrupted}-checkpoints").rglob("*")) == before


def test_other_data_do_not_go_on_from_the_checkpoints(interrupted, few, tiny):
    other = Splits(few.train.select(range(39, -1, -1)), few.heldout)
    with pytest.raises(ConfigError, match="its data are others"):
        train("pre-norm:dropout=0.2", data=other, output_dir=interrupted, **{**tiny, **SAVING})


def test_what_decides_nothing_may_change(finished, interrupted, few, tiny):
    given = {**tiny, **SAVING, "save_steps": 2, "save_total_limit": 1, "generation": {"num_beams": 1, "max_length": 3}}
    train("pre-norm:dropout=0.2", data=few, output_dir=interrupted, **given)
    assert outcome(interrupted)[1] == outcome(finished)[1] == 8


def test_a_model_that_cannot_be_scored_is_kept(few, tiny, tmp_path, monkeypatch):
    folder = tmp_path / "model"
    with monkeypatch.context() as patched:
        patched.setattr("zoo.training.training.predict", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(ScoringError, match=r"model holds the trained model, but .*ZeroDivisionError.*zoo evaluate"):
            train("pre-norm", data=few, output_dir=folder, resume=True, **tiny)
    assert (folder / "model.safetensors").is_file() and "report" not in json.loads((folder / "result.json").read_text())
    with pytest.raises(OutputExistsError):
        train("pre-norm", data=few, output_dir=folder, **tiny)
    report = train("pre-norm", data=few, output_dir=folder, resume=True, **tiny).report
    assert report.steps == 4 and read_result(folder)["report"]["heldout_loss"] == report.heldout_loss


def test_what_cannot_be_resumed(few, tiny, tmp_path):
    assert last_checkpoint(tmp_path / "nowhere") is None
    with pytest.raises(ConfigError, match="without output_dir"):
        train("pre-norm", data=few, resume=True, **tiny)
    for given in ({"save_only_model": True}, {"save_strategy": "no"}):
        ((name, value),) = given.items()
        with pytest.raises(ConfigError, match=f"{name}={value} was given, which leaves no checkpoint to go on from"):
            train("pre-norm", data=few, resume=True, output_dir=tmp_path / "model", **{**tiny, **given})
    folder = tmp_path / "model"
    train("pre-norm", data=few, output_dir=folder, save_strategy="epoch", **tiny)
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


@pytest.mark.slow
def test_a_folder_that_another_process_trains_into_is_refused_and_left_alone(few, tiny, tmp_path):
    """Whatever the second one is given; the first one ends as if there had been none."""
    script = """
import sys
from zoo.training import train
try:
    train("pre-norm", output_dir=sys.argv[1], resume=sys.argv[2] == "resume", force=True, progress=False)
except Exception as error:
    print(type(error).__name__, error)
"""
    output = tmp_path / "made" / "model"
    printed = {}

    class Second(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 4:
                for kind in ("new", "resume"):
                    printed[kind] = run_fork(["-c", script, str(output), kind], env=os.environ).stdout

    train("pre-norm", data=few, output_dir=output, callbacks=[Second()], **{**tiny, **SAVING})
    for kind, text in printed.items():
        assert "OutputExistsError another process is training into" in text, f"{kind}: {text}"
    assert (output / "result.json").is_file()
    assert sorted(os.listdir(tmp_path / "made")) == ["model"], "checkpoints go when the training has succeeded"


def test_what_a_refused_run_was_to_write_leaves_no_folder(few, tiny, tmp_path):
    with pytest.raises(ConfigError):
        train("pre-norm", data=few, output_dir=tmp_path / "a" / "b", **{**tiny, "optim": "no such thing"})
    assert not list(tmp_path.iterdir())


def test_another_batch_size_is_refused_by_what_was_given(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "PartialState", lambda: SimpleNamespace(num_processes=2))
    (tmp_path / checkpoints.SEAL).write_text(json.dumps({"run": {"arguments": {"per_device_train_batch_size": 8}}}))
    with pytest.raises(ConfigError, match="per_device_train_batch_size is 4, not 16;"):
        checkpoints.check_same_run(tmp_path, {"arguments": {"per_device_train_batch_size": 32}})
    with pytest.raises(ConfigError, match="per_device_train_batch_size is 8, not 9;"):
        checkpoints.check_same_run(tmp_path, {"arguments": {"per_device_train_batch_size": 9}})
