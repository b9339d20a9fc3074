"""Training: checkpointing, compilation, low precision, modes, and the trainer with each of them."""

import copy
import math
import tempfile
import warnings
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from transformers import Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import TrainOutput
from transformers_citizen.support import ASSORTED, EVERY, ONE_OF_EACH, over, single, tiny

import zoo
from zoo.base.errors import ZooWarning
from zoo.testing import token_ids

NO_DROPOUT = dict(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)


def labelled(subject, batch_size: int = 3) -> dict[str, Tensor]:
    return {**subject.inputs(batch_size), "labels": subject.labels(batch_size)}


def gradients(model, inputs) -> dict[str, Tensor | None]:
    """Gradients by name, None for layers that run in training mode only."""
    model.zero_grad()
    model(**inputs).loss.backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {name: None if gradient is None else gradient.clone() for name, gradient in found.items()}


@pytest.mark.thorough
@over(EVERY)
def test_forward_and_backward_compile_into_one_graph(pair):
    subject = tiny(pair)
    inputs = labelled(subject)
    plain = gradients(subject.copy(), inputs)
    torch.compiler.reset()
    counter = CompileCounter()
    compiled = torch.compile(subject.copy(), fullgraph=True, backend=counter)
    loss = compiled(**inputs).loss
    loss.backward()
    torch.testing.assert_close(loss, subject.model(**inputs).loss)
    for name, parameter in compiled._orig_mod.named_parameters():
        torch.testing.assert_close(parameter.grad, plain[name])
    assert counter.frame_count == 1


@over(ONE_OF_EACH)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_low_precision_trains_with_a_scaled_loss(pair, dtype):
    subject = tiny(pair)
    model = single(pair).train()
    torch.manual_seed(0)  # of dropout
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, enabled=dtype == torch.float16)
    losses = []
    for _ in range(4):
        with torch.autocast("cpu", dtype=dtype):
            loss = model(**labelled(subject)).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


@over(ASSORTED)
def test_the_loss_is_divided_by_the_number_of_items_in_all_batches(pair):
    subject = tiny(pair)
    inputs = labelled(subject)
    labels = inputs["labels"]
    counted = labels[:, 1:] if pair[1] == "causal-lm" else labels
    number = (counted != -100).sum()
    mean = subject.model(**inputs).loss
    torch.testing.assert_close(subject.model(**inputs, num_items_in_batch=number * 2).loss, mean / 2)


@pytest.mark.parametrize("problem_type", ["regression", "multi_label_classification", "single_label_classification"])
def test_losses_of_sequences_add_up_to_that_of_an_update(problem_type):
    subject = tiny(("pre-norm", "sequence-classification"))
    model, inputs = subject.copy(), subject.inputs(4)
    model.config.problem_type = problem_type
    shape = (4,) if problem_type.startswith("single") else (4, model.config.num_labels)
    labels = torch.arange(math.prod(shape)).view(shape) % 2
    labels = labels if problem_type.startswith("single") else labels.double()
    whole = model(**inputs, labels=labels).loss
    parts = [
        model(input_ids=ids[None], labels=label[None], num_items_in_batch=torch.tensor(labels.numel())).loss
        for ids, label in zip(inputs["input_ids"], labels, strict=True)
    ]
    torch.testing.assert_close(sum(parts), whole)


@over(tuple(pair for pair in ASSORTED if pair[1] == "causal-lm"))
def test_packed_sequences_equal_separate_ones(pair):
    subject = tiny(pair)
    ids = subject.inputs(batch_size=12)["input_ids"]
    packed, positions = ids.reshape(1, -1), torch.arange(ids.shape[1]).repeat(1, len(ids))
    assert packed.shape[1] > subject.config.max_position_embeddings  # the table holds one sequence, not all
    logits = subject.run(input_ids=packed, position_ids=positions, use_cache=False).reshape(len(ids), ids.shape[1], -1)
    torch.testing.assert_close(logits, subject.run(input_ids=ids))


class Rows(torch.utils.data.Dataset):
    """The same few labelled sequences over and over."""

    def __init__(self, subject, length: int = 8) -> None:
        self.columns = labelled(subject, batch_size=length)

    def __len__(self) -> int:
        return len(self.columns["labels"])

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: column[index] for name, column in self.columns.items()}


def losses(pair, folder: Path, **settings) -> list[float]:
    """The loss of every step of a short training run."""
    set_seed(0)
    subject = tiny(pair)
    model = zoo.build(subject.name, subject.task, dtype=torch.float32, seed=1, **NO_DROPOUT)
    usual = dict(
        output_dir=str(folder),
        max_steps=8,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        seed=0,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(model=model, args=TrainingArguments(**{**usual, **settings}), train_dataset=Rows(subject))
    outcome = trainer.train()
    assert isinstance(outcome, TrainOutput)
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@cache
def plain_losses(pair) -> list[float]:
    """The same without any feature, for all features to be compared with."""
    with tempfile.TemporaryDirectory() as folder:
        return losses(pair, Path(folder))


FEATURES = {
    "bf16": (dict(bf16=True), 0.02),
    "checkpointing": (dict(gradient_checkpointing=True), 1e-4),
    "checkpointing-reentrant": (
        dict(gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True}),
        1e-4,
    ),
    "accumulation": (dict(per_device_train_batch_size=1, gradient_accumulation_steps=4), 1e-4),
    "compile": (dict(torch_compile=True, torch_compile_backend="aot_eager"), 1e-4),
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("pair", "feature"),
    [
        pytest.param(
            pair,
            feature,
            id=f"{'-'.join(pair)}-{feature}",
            marks=() if pair == ONE_OF_EACH[0] else (pytest.mark.slow, pytest.mark.nightly),
        )
        for pair in ONE_OF_EACH
        for feature in FEATURES
    ],
)
def test_every_feature_of_the_trainer_gives_the_plain_loss_curve(pair, feature, tmp_path: Path):
    settings, tolerance = FEATURES[feature]
    plain = plain_losses(pair)
    assert len(plain) == 8
    assert plain[-1] < plain[0]
    with_feature = losses(pair, tmp_path, **settings)
    assert with_feature == pytest.approx(plain, rel=tolerance)


@over((("pre-norm", "causal-lm"),))
def test_label_smoothing_shifts_the_labels_of_a_decoder(pair, tmp_path: Path):
    subject = tiny(pair)
    model = single(pair)
    arguments = TrainingArguments(output_dir=str(tmp_path), label_smoothing_factor=1e-9, use_cpu=True, report_to=[])
    trainer = Trainer(model=model, args=arguments)
    inputs = labelled(subject)
    torch.testing.assert_close(trainer.compute_loss(model, dict(inputs)), model(**inputs).loss, rtol=1e-4, atol=1e-4)


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
