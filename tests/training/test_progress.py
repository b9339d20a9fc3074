"""Progress bars: for those who watch, in logs, and switched off."""

import re
from functools import partial

from tqdm.auto import tqdm
from transformers import TrainerControl, TrainerState, TrainingArguments, trainer_callback

from zoo.training.progress import LossProgress


def train(folder, steps: int) -> None:
    """The events of a run in which every step takes 0.2 seconds."""
    args, control = TrainingArguments(output_dir=str(folder)), TrainerControl()
    state = TrainerState(max_steps=steps)
    progress = LossProgress("pre-norm")
    progress.on_train_begin(args, state, control)
    for step in range(1, steps + 1):
        state.global_step = step
        if not progress.training_bar.disable:
            progress.training_bar.start_t -= 0.2
            progress.training_bar.last_print_t -= 0.2
        progress.on_step_end(args, state, control)
        progress.on_log(args, state, control, logs={"loss": 1.0})
    for _ in range(3):
        progress.on_prediction_step(args, state, control, eval_dataloader=range(3))
    progress.on_evaluate(args, state, control)
    progress.on_train_end(args, state, control)


def test_a_log_is_not_filled_with_the_states_of_a_bar(tmp_path, capsys):
    train(tmp_path, 500)
    shown = capsys.readouterr().err
    assert "pre-norm: 100%" in shown and shown.count("it/s") < 12


def test_disabled_bars_print_nothing(tmp_path, capsys, monkeypatch):
    """TQDM_DISABLE=1 is read when tqdm is imported, as the default of this argument."""
    monkeypatch.setattr(trainer_callback, "tqdm", partial(tqdm, disable=True))
    train(tmp_path, 3)
    assert capsys.readouterr().err == ""


def draw(bar, done) -> None:
    """Let two steps take 0.2 seconds each, and draw the bar after each."""
    bar.mininterval = 0.1
    for _ in range(2):
        bar.start_t -= 0.2
        bar.last_print_t -= 0.2
        done()


def test_a_bar_counts_no_step_that_was_made_before_it(tmp_path, capsys):
    """The first batch of an evaluation, and the steps before a resumed run, took no time of the bar."""
    args, control = TrainingArguments(output_dir=str(tmp_path)), TrainerControl()
    state = TrainerState(max_steps=1010, global_step=1000)
    progress = LossProgress("pre-norm")

    def step() -> None:
        state.global_step += 1
        progress.on_step_end(args, state, control)

    def batch() -> None:
        progress.on_prediction_step(args, state, control, eval_dataloader=range(3))

    progress.on_train_begin(args, state, control)
    draw(progress.training_bar, step)
    batch()
    draw(progress.prediction_bar, batch)
    rates = [float(rate) for rate in re.findall(r"([\d.]+)it/s", capsys.readouterr().err)]
    assert len(rates) >= 4 and max(rates) < 10
