"""The loss that never holds all logits."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import zoo
from zoo.models.chunked_loss import chunked_loss

TOKENS, WIDTH, VOCABULARY = 23, 8, 50


@pytest.fixture
def head():
    torch.manual_seed(0)
    return torch.nn.Linear(WIDTH, VOCABULARY)


@pytest.mark.parametrize("chunk_size", [1, 7, 23, 100])
@pytest.mark.parametrize("items", [None, 40])
def test_chunks_add_up(head, chunk_size, items):
    hidden_states = torch.randn(1, TOKENS, WIDTH, requires_grad=True)
    labels = torch.randint(VOCABULARY, (1, TOKENS))
    labels[0, ::4] = -100
    loss = chunked_loss(hidden_states, labels, head, list(head.parameters()), items, chunk_size)
    found = torch.autograd.grad(3 * loss, (hidden_states, head.weight, head.bias))
    logits = head(hidden_states)[0]
    plain = F.cross_entropy(logits, labels[0], reduction="sum") / (items or labels.ne(-100).sum())
    expected = torch.autograd.grad(3 * plain, (hidden_states, head.weight, head.bias))
    torch.testing.assert_close(loss, plain)
    torch.testing.assert_close(found, expected)


def test_what_is_frozen_gets_no_gradient(head):
    hidden_states, labels = torch.randn(1, TOKENS, WIDTH), torch.randint(VOCABULARY, (1, TOKENS))
    head.weight.requires_grad_(False)
    chunked_loss(hidden_states, labels, head, list(head.parameters())).backward()
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
        assert not chunked_loss(hidden_states, labels, project, list(head.parameters())).requires_grad


def test_labels_that_are_shifted_already_stay_where_they_are():
    model = zoo.build("pre-norm@tiny", "causal-lm", vocab_size=20, seed=0).eval()
    ids = torch.arange(3, 15)[None]
    inputs = {"input_ids": ids, "labels": ids, "shift_labels": ids.roll(-1)}
    torch.testing.assert_close(model(**inputs, skip_logits=True).loss, model(**inputs).loss)


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
