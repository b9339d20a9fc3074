"""Progress bars: for those who watch, and in logs."""

from __future__ import annotations

from transformers import TrainerControl, TrainerState, TrainingArguments

from zoo.training.progress import LossProgress


def test_a_log_is_not_filled_with_the_states_of_a_bar(tmp_path, capsys):
    args, control = TrainingArguments(output_dir=str(tmp_path)), TrainerControl()
    state = TrainerState(max_steps=500)
    progress = LossProgress("pre-norm")
    progress.on_train_begin(args, state, control)
    for step in range(1, 501):
        state.global_step = step
        progress.training_bar.start_t -= 0.2  # as if a step took that long
        progress.training_bar.last_print_t -= 0.2
        progress.on_step_end(args, state, control)
    for _ in range(3):
        progress.on_prediction_step(args, state, control, eval_dataloader=range(3))
    progress.on_evaluate(args, state, control)
    progress.on_train_end(args, state, control)
    shown = capsys.readouterr().err
    assert "pre-norm: 100%" in shown
    assert shown.count("it/s") < 12
