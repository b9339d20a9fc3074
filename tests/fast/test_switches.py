"""Switches of fast paths: a thread's own, or read from the environment; all are off in `torch.func`."""

import threading

import pytest
import torch
from preloaded import run_python
from torch.func import functional_call, grad, vmap

from zoo.base.errors import InputError
from zoo.fast import fast_paths
from zoo.fast.switches import current
from zoo.testing import new_subject
from zoo.testing.subjects import gradients_of


def test_modes_are_a_thread_s_own():
    """Blocks that another thread begins or ends in between change nothing, in any order."""
    begun, ended, seen = threading.Event(), threading.Event(), []

    def other():
        seen.append(current().unpadding)
        with fast_paths(unpadding="always"):
            begun.set()
            assert ended.wait(60)
            seen.append(current().unpadding)

    thread = threading.Thread(target=other)
    with fast_paths(unpadding="never"):
        thread.start()
        assert begun.wait(60)
        assert current().unpadding == "never"
    assert current().unpadding == "auto"
    ended.set()
    thread.join()
    assert seen == ["auto", "always"] and current().unpadding == "auto"


def test_variables_are_read():
    code = "from zoo.fast.switches import current; print(current().graph_capture, current().prepacked_weights)"
    variables = {"ZOO_GRAPH_CAPTURE": "never", "ZOO_PREPACKED_WEIGHTS": "always"}
    run = run_python(["-c", code], env=variables)
    assert run.stdout.split() == ["never", "always"]


def test_other_words_are_refused():
    with (
        pytest.raises(InputError, match="graph_capture='sometimes'; valid: auto, always, never"),
        fast_paths(graph_capture="sometimes"),
    ):
        pass


@pytest.mark.parametrize(("name", "task"), [("vanilla", "seq2seq-lm"), ("diff-transformer", "causal-lm")])
def test_gradients_of_each_row_are_those_of_torch_func(name, task):
    """Also of a row with few labels, and of a loss without logits."""
    subject = new_subject(f"{name}:dropout=0.0,attention_dropout=0.0,activation_dropout=0.0", task)
    model = subject.copy().train()
    model.set_attn_implementation("eager")  # which PyTorch runs on all rows at once
    inputs = {**subject.inputs(), "labels": subject.labels()}
    inputs["labels"][0, 3:] = -100

    def loss_of(parameters, row):
        row = {name: one[None] for name, one in row.items()}
        return functional_call(model, parameters, kwargs={**row, "skip_logits": True}).loss

    with fast_paths(chunked_loss="always", unpadding="always"):
        found = vmap(grad(loss_of), in_dims=(None, 0))(dict(model.named_parameters()), inputs)
    for index in range(len(inputs["labels"])):
        model.zero_grad()
        model(**{name: one[[index]] for name, one in inputs.items()}).loss.backward()
        for parameter, gradient in gradients_of(model).items():
            torch.testing.assert_close(found[parameter][index], gradient, rtol=1e-6, atol=1e-6)
