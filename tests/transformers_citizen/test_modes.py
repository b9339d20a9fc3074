"""Training and evaluation mode: a loss whose gradient is computed in the wrong one is noticed once."""

import copy
import warnings

import pytest
import torch

import zoo
from zoo.base.errors import ZooWarning
from zoo.testing import token_ids

IDS = token_ids(2, 5, 30, 0)
SEQUENCE_LABELS = torch.tensor([0, 1])
MODELS = {
    "causal-lm": ("pre-norm", IDS),
    "seq2seq-lm": ("pre-norm", IDS),
    "masked-lm": ("pre-norm", IDS),
    "sequence-classification": ("pre-norm", SEQUENCE_LABELS),
    "token-classification": ("pre-norm", IDS % 2),
}


@pytest.mark.parametrize("task", MODELS)
@pytest.mark.parametrize("skip_logits", [False, True])
def test_the_first_backward_pass_in_evaluation_mode_warns_once(task: str, skip_logits: bool) -> None:
    name, labels = MODELS[task]
    model = zoo.build(f"{name}@tiny", task, vocab_size=30)
    skips = {"skip_logits": True} if skip_logits and "classification" not in task else {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss = model(input_ids=IDS, labels=labels, **skips).loss
        with torch.no_grad():
            model(input_ids=IDS, labels=labels, **skips)
    with pytest.warns(ZooWarning, match=r"never in training mode: call model\.train\(\)") as caught:
        loss.backward()
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(input_ids=IDS, labels=labels, **skips).loss.backward()


def test_a_model_that_was_in_training_mode_does_not_warn() -> None:
    model = zoo.build("pre-norm@tiny", "causal-lm", vocab_size=30).train()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for one in (model, model.eval(), copy.deepcopy(model)):
            one(input_ids=IDS, labels=IDS).loss.backward()


def test_experts_are_claimed_where_there_are_some() -> None:
    assert zoo.build("mixtral-style@tiny")._can_set_experts_implementation()
    assert not zoo.build("llama-style@tiny")._can_set_experts_implementation()
    assert not zoo.models.ZooModel._can_set_experts_implementation()


def test_a_mode_that_one_part_lacks_is_set_in_all() -> None:
    model = zoo.build("pre-norm@tiny", "causal-lm", vocab_size=20).train()
    assert model.train() is model
    part = model.model.layers[0].mlp.eval()
    assert model.train().training and part.training and all(one.training for one in model.modules())
    assert not any(one.training for one in model.eval().modules())
