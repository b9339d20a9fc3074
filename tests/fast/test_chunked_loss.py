"""The loss that never holds all logits."""

import pytest
import torch
from torch.nn import functional as F

import zoo
from zoo.fast.chunked_loss import chunked_loss
from zoo.fast.switches import fast_paths
from zoo.testing.subjects import new_subject

TOKENS, WIDTH, VOCABULARY = 23, 8, 50


@pytest.fixture
def head():
    torch.manual_seed(0)
    return torch.nn.Linear(WIDTH, VOCABULARY)


@pytest.mark.parametrize("chunk_size", [1, 7, 23, 100])
@pytest.mark.parametrize(("label_smoothing", "z_loss"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.2), (0.3, 0.2)])
def test_chunks_add_up(head, chunk_size, label_smoothing, z_loss):
    hidden_states = torch.randn(1, TOKENS, WIDTH, requires_grad=True)
    labels = torch.randint(VOCABULARY, (1, TOKENS))
    labels[0, ::4] = -100
    parameters = list(head.parameters())
    loss = chunked_loss(hidden_states, labels, head, parameters, chunk_size, label_smoothing, z_loss)
    found = torch.autograd.grad(3 * loss, (hidden_states, *parameters))
    logits, learned = head(hidden_states)[0], labels[0] >= 0
    plain = F.cross_entropy(logits, labels[0], reduction="sum", label_smoothing=label_smoothing)
    plain = plain + z_loss * logits[learned].exp().sum(dim=-1).log().square().sum()
    expected = torch.autograd.grad(3 * plain, (hidden_states, *parameters))
    torch.testing.assert_close(loss, plain)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_gradients_of_many_chunks_in_16_bits_are_as_exact_as_of_one(head, dtype):
    labels, states = torch.randint(VOCABULARY, (2000,)), torch.rand(2000, WIDTH).to(dtype)
    head = head.to(dtype)
    parameters = list(head.parameters())
    F.cross_entropy(
        F.linear(states.double(), *(one.double() for one in parameters)), labels, reduction="sum"
    ).backward()
    exact = [one.grad for one in parameters]
    for chunk_size in (2000, 2):
        found = torch.autograd.grad(chunked_loss(states, labels, head, parameters, chunk_size), parameters)
        for one, other in zip(found, exact, strict=True):
            assert one.dtype == dtype and (one - other).norm() < 0.01 * other.norm(), chunk_size


@pytest.mark.skipif(not hasattr(F, "linear_cross_entropy"), reason="PyTorch has it since 2.13")
def test_pytorchs_own_is_as_exact_in_float32_and_less_in_bfloat16():
    """Where the second half fails, PyTorch adds up in float32 as well, and may take the place of ours."""
    torch.manual_seed(0)
    hidden_states, head, labels = torch.randn(512, 64), torch.nn.Linear(64, 2000), torch.randint(2000, (512,))
    off: dict[torch.dtype, list[float]] = {}
    for dtype in (torch.float32, torch.bfloat16):
        states, lower = hidden_states.to(dtype), head.to(dtype)
        exact = F.cross_entropy(states.double() @ lower.weight.double().T + lower.bias.double(), labels).detach()
        ours = chunked_loss(states, labels, lower, list(lower.parameters()), 128) / len(labels)
        options = torch.nn.LinearCrossEntropyOptions()
        theirs = F.linear_cross_entropy(states, lower.weight, labels, linear_bias=lower.bias, options=options)
        off[dtype] = [abs(float((loss - exact) / exact)) for loss in (ours.detach(), theirs.detach())]
    assert max(off[torch.float32]) < 1e-6
    assert off[torch.bfloat16][0] < 1e-3 < off[torch.bfloat16][1]


@pytest.mark.parametrize("task", ["causal-lm", "masked-lm", "seq2seq-lm"])
@pytest.mark.parametrize("items", [None, 40])
def test_a_head_smooths_labels_with_logits_and_without(task, items):
    model = zoo.build("pre-norm@tiny", task, vocab_size=20, seed=0).eval()
    labels = torch.arange(3, 15)[None].masked_fill(torch.arange(12) % 5 == 4, -100)
    options = {"loss_smoothing": 0.2, "z_loss": 0.1, "num_items_in_batch": items}
    plain = model(input_ids=torch.arange(3, 15)[None], labels=labels, **options)
    logits, targets = plain.logits[0], labels[0]
    if task == "causal-lm":
        logits, targets = logits[:-1], targets[1:]
    expected = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=0.2)
    expected = expected + 0.1 * logits[targets >= 0].logsumexp(dim=-1).square().sum()
    torch.testing.assert_close(plain.loss, expected / (items or targets.ne(-100).sum()))
    for mode in ("never", "always", "auto"):
        with fast_paths(chunked_loss=mode):
            lean = model(input_ids=torch.arange(3, 15)[None], labels=labels, skip_logits=True, **options)
        assert lean.logits is None
        torch.testing.assert_close(lean.loss, plain.loss)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_loss_without_gradients(head, mode):
    labels = torch.randint(VOCABULARY, (1, TOKENS))
    with mode():
        hidden_states = torch.randn(1, TOKENS, WIDTH)
        loss = chunked_loss(hidden_states, labels, head, list(head.parameters()), 7)
        torch.testing.assert_close(loss, F.cross_entropy(head(hidden_states)[0], labels[0], reduction="sum"))


def test_chunks_are_made_where_they_pay(monkeypatch):
    model = zoo.build("pre-norm@tiny", "causal-lm", vocab_size=20)
    seen = []
    project = model.project
    monkeypatch.setattr(model, "project", lambda states: seen.append(states.shape) or project(states))
    ids = torch.arange(3, 15)[None].repeat(2, 1)

    def shapes(mode: str) -> list[torch.Size]:
        seen.clear()
        with fast_paths(chunked_loss=mode):
            model(input_ids=ids, labels=ids, skip_logits=True)
        return list(seen)

    assert shapes("auto") == shapes("never") == [(2, 12, model.config.hidden_size)]
    assert shapes("always") == [(22, model.config.hidden_size)]
    monkeypatch.setattr("zoo.fast.chunked_loss.FEW", 2 * 12 * 20 - 1)
    assert shapes("auto") == shapes("always")


def test_what_is_frozen_gets_no_gradient(head):
    hidden_states, labels = torch.randn(1, TOKENS, WIDTH), torch.randint(VOCABULARY, (1, TOKENS))
    head.weight.requires_grad_(False)
    chunked_loss(hidden_states, labels, head, list(head.parameters()), 10).backward()
    assert head.weight.grad is None
    assert head.bias.grad.abs().sum() > 0


def test_logits_of_all_tokens_never_exist(head):
    sizes = []

    def project(states):
        sizes.append(states.shape[0])
        return head(states)

    hidden_states = torch.randn(2, TOKENS, WIDTH, requires_grad=True)
    labels = torch.full((2, TOKENS), -100)
    labels[:, :9] = 3
    chunked_loss(hidden_states, labels, project, list(head.parameters()), chunk_size=5).backward()
    assert sizes == [5, 5, 5, 3]
    with torch.no_grad():
        assert not chunked_loss(hidden_states, labels, project, list(head.parameters()), 5).requires_grad


def test_labels_that_are_shifted_already_stay_where_they_are():
    model = zoo.build("pre-norm@tiny", "causal-lm", vocab_size=20, seed=0).eval()
    ids = torch.arange(3, 15)[None]
    inputs = {"input_ids": ids, "labels": ids, "shift_labels": ids.roll(-1)}
    for mode in ("never", "always"):
        with fast_paths(chunked_loss=mode):
            torch.testing.assert_close(model(**inputs, skip_logits=True).loss, model(**inputs).loss)


@pytest.mark.thorough
def test_a_step_holds_less_memory():
    model = zoo.build("pre-norm@tiny", "causal-lm", vocab_size=5000)
    ids = torch.randint(3, 5000, (16, 256))
    peaks = {}
    for skip in (False, True):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            model(input_ids=ids, labels=ids, skip_logits=skip).loss.backward()
        held = peak = 0
        for event in profile.profiler.kineto_results.events():
            if event.name() == "[memory]":
                held += event.nbytes()
                peak = max(peak, held)
        peaks[skip] = peak
    assert peaks[True] < 0.8 * peaks[False], peaks


def test_replicas_of_data_parallel_teach_their_head():
    """A replica's weights are no parameters, but results of those that are."""
    subject = new_subject("llama-style", "causal-lm")
    inputs = subject.inputs()
    gradients = []
    for replicated in (False, True):
        model = subject.copy().train()
        learned = model.lm_head.weight
        if replicated:
            model.lm_head = model.lm_head._replicate_for_data_parallel()
            model.lm_head.weight, model.lm_head.bias = learned * 1, None
        with fast_paths(chunked_loss="always"):
            model(**inputs, labels=inputs["input_ids"], skip_logits=True).loss.backward()
        gradients.append(learned.grad)
    torch.testing.assert_close(*gradients)
