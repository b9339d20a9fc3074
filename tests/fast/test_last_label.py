"""Positions of a decoder after the last label of a row: without them, the loss and its gradients are the same."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

import zoo
from zoo.fast import fast_paths
from zoo.fast.chunked_loss import IGNORED
from zoo.fast.unpad_layers import mask_to_last_label
from zoo.registry import VARIANTS
from zoo.testing import randomize, token_ids

NAMES = [
    one
    for name in zoo.list_variants(task="seq2seq-lm")
    for one in (name, *([f"{name}+faithful"] if VARIANTS.get(name).quirks else []))
    if one != "odom-style+faithful"  # which takes no token ids
]
VOCABULARY, SOURCE, TARGET = 30, 9, 9
TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}


def batch() -> dict[str, Any]:
    """What `DataCollatorForSeq2Seq` gives: no mask of the target. Labels have a gap, and one row has a single label."""
    mask = torch.ones(4, SOURCE, dtype=torch.long)
    mask[0, 4:] = mask[2, 5:] = 0
    labels = token_ids(4, TARGET, VOCABULARY, 1)
    labels[0, 5:] = labels[1, 2:] = labels[2, 1:] = labels[3, 3] = IGNORED
    return {"input_ids": token_ids(4, SOURCE, VOCABULARY, 0) * mask, "attention_mask": mask, "labels": labels}


def trained(name: str) -> Any:
    sizes: dict[str, Any] = {**TINY, **NO_DROPOUT, "vocab_size": VOCABULARY, "dtype": torch.float64}
    return randomize(zoo.build(name, "seq2seq-lm", **sizes)).train()


def loss_and_gradients(model: Any, **options: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    loss = model(**batch(), **options).loss
    loss.backward()
    return loss.detach(), {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_and_its_gradients_are_the_same_without_them(name: str) -> None:
    model = trained(name)
    with fast_paths(unpadding="never"):
        loss, gradients = loss_and_gradients(model)
    for skip_logits in (True, False):
        with fast_paths(unpadding="always"):
            found, others = loss_and_gradients(model, skip_logits=skip_logits)
        torch.testing.assert_close(found, loss, rtol=1e-6, atol=0)  # losses are summed in float32
        assert gradients.keys() == others.keys()
        for parameter, gradient in gradients.items():
            torch.testing.assert_close(others[parameter], gradient, rtol=1e-7, atol=1e-9, msg=parameter)


def test_transformers_trainer_takes_them_out_too(tmp_path: Any) -> None:
    """Its steps are those that it makes with the whole target."""
    losses = {}
    for mode in ("never", "always"):
        model = zoo.build("pre-norm", "seq2seq-lm", vocab_size=VOCABULARY, dropout=0.0, seed=0, **TINY)
        rows = [{name: part[row] for name, part in batch().items()} for row in range(4)]
        arguments = Seq2SeqTrainingArguments(
            output_dir=str(tmp_path), max_steps=3, logging_steps=1, use_cpu=True, report_to=[], disable_tqdm=True
        )
        trainer = Seq2SeqTrainer(model=model, args=arguments, train_dataset=rows)
        seen = lengths_in(model, trainer.train, mode)
        losses[mode] = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        assert (5 + 2 + 1 + TARGET in seen) == (mode == "always")
    assert losses["always"] == pytest.approx(losses["never"], rel=1e-5)


def lengths_of(model: Any, **options: Any) -> list[int]:
    """How many positions the decoder's layers see in a row."""
    return lengths_in(model, lambda: model(**batch(), **options))


def lengths_in(model: Any, run: Callable[[], Any], mode: str = "always") -> list[int]:
    """The same of all calls in a run."""
    seen: list[int] = []
    layer = type(model.model.decoder.layers[0])

    def forward(self: Any, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        seen.append(hidden_states.shape[1])
        return plain(self, hidden_states, *args, **kwargs)

    plain, layer.forward = layer.forward, forward
    try:
        with fast_paths(unpadding=mode):
            run()
    finally:
        layer.forward = plain
    return seen


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_the_whole_target_where_they_may_be_read(name: str) -> None:
    """Up to the last label in training, at every position in evaluation, without gradients, or with a mask."""
    model = trained(name)
    given = batch()
    up_to_last = mask_to_last_label(model.model.decoder, given["labels"])
    with fast_paths(unpadding="never"):
        expected = model(**given).logits
    with fast_paths(unpadding="always"):
        found = model(**given).logits
        with torch.no_grad():
            without_gradients = model(**given).logits
        masked = model(**given, decoder_attention_mask=torch.ones_like(given["labels"])).logits
    read = slice(None) if up_to_last is None else up_to_last.bool()
    torch.testing.assert_close(found[read], expected[read], rtol=1e-7, atol=1e-9)
    if up_to_last is not None and model.drops_masks:
        assert not found[~up_to_last.bool()].any(), "logits of padding are zeros"
    for logits in (without_gradients, *([masked] if model.drops_masks else [])):
        torch.testing.assert_close(logits, expected, rtol=1e-7, atol=1e-9)


def test_they_are_taken_out_where_logits_are_not_returned_or_a_model_is_trained() -> None:
    model = zoo.build("pre-norm", "seq2seq-lm", vocab_size=VOCABULARY, **TINY)
    assert set(lengths_of(model, skip_logits=True)) == {5 + 2 + 1 + TARGET}
    assert set(lengths_of(model)) == {4 * TARGET}
    assert set(lengths_of(model.train())) == {5 + 2 + 1 + TARGET}
    with torch.no_grad():
        assert set(lengths_of(model)) == {4 * TARGET}
    model.eval()
    for recorded in ("output_hidden_states", "output_attentions"):
        assert set(lengths_of(model, skip_logits=True, **{recorded: True})) & {TARGET, 4 * TARGET}


def test_only_positions_up_to_the_last_label_are_projected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss of one's own on their logits has the same gradients."""
    model = trained("vanilla")
    seen: list[int] = []
    project = type(model).project

    def counting(self: Any, states: torch.Tensor) -> torch.Tensor:
        seen.append(states.shape[:-1].numel())
        return project(self, states)

    monkeypatch.setattr(type(model), "project", counting)
    gradients = []
    for mode in ("always", "never"):
        with fast_paths(unpadding=mode):
            logits = model(**batch()).logits
        model.zero_grad()
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch()["labels"].flatten()).backward()
        gradients.append(model.lm_head.weight.grad.clone())
    model.lm_head.register_forward_hook(lambda *given: None)
    with fast_paths(unpadding="always"):
        model(**batch())
    assert seen == [5 + 2 + 1 + TARGET, 4 * TARGET, 4 * TARGET], "a hook sees all positions"
    torch.testing.assert_close(*gradients)


def test_the_mask_reaches_to_the_last_label_and_is_worth_it() -> None:
    decoder = zoo.build("pre-norm", "seq2seq-lm", vocab_size=VOCABULARY, **TINY).model.decoder
    labels = torch.tensor([[3, IGNORED, 4, IGNORED], [IGNORED] * 4])
    assert mask_to_last_label(decoder, labels).tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]
    assert mask_to_last_label(decoder, torch.ones(2, 4, dtype=torch.long)) is None
