"""The trainer's loss: as transformers' own, smoothed labels included, with logits only where they are read."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForTokenClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    Trainer,
)

import zoo
from zoo.data.tasks import find_task
from zoo.fast.switches import fast_paths
from zoo.training import TrainingError, train
from zoo.training.arguments import training_arguments
from zoo.training.trainer import ZooTrainer

IDS = torch.arange(3, 15).view(2, 6)


class Rows(Dataset):
    """Blocks, as a data set of torch."""

    def __init__(self, rows: list[dict]) -> None:
        self.rows = rows
        self.lengths = [len(row["input_ids"]) for row in rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> dict:
        return self.rows[number]


def batch(task: str) -> dict[str, Tensor]:
    if task == "sequence-classification":
        return {"input_ids": IDS, "labels": torch.tensor([0, 1])}
    labels = IDS.flip(1).masked_fill(IDS % 5 == 4, -100)
    return {"input_ids": IDS, "attention_mask": (IDS < 14).long(), "labels": labels}


def trainer_of(task: str, folder, **settings) -> ZooTrainer:
    model = zoo.build("pre-norm@tiny", task, vocab_size=20, seed=0, dropout=0.0).train()
    return ZooTrainer(model=model, args=training_arguments({"use_cpu": True, **settings}, output_dir=folder, seed=0))


def test_labels_of_blocks_are_smoothed_without_a_second_shift_in_models_of_transformers(tmp_path):
    config = GPT2Config(vocab_size=20, n_positions=8, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0)
    settings = training_arguments({"use_cpu": True, "label_smoothing_factor": 0.2}, output_dir=tmp_path, seed=0)
    trainer = ZooTrainer(model=GPT2LMHeadModel(config).eval(), args=settings)
    inputs = {"input_ids": IDS[:, :-1], "labels": IDS[:, 1:], "shift_labels": IDS[:, 1:]}
    logits = trainer.model(IDS[:, :-1]).logits.flatten(0, 1)
    for items, number in ((None, 10), (torch.tensor(7), 7)):
        loss = trainer.compute_loss(trainer.model, dict(inputs), num_items_in_batch=items)
        expected = F.cross_entropy(logits, IDS[:, 1:].flatten(), label_smoothing=0.2, reduction="sum") / number
        torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("task", ["causal-lm", "masked-lm", "seq2seq-lm", "sequence-classification"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("items", [None, torch.tensor(7)])
def test_the_loss_is_that_of_transformers(task, smoothing, items, tmp_path):
    trainer = trainer_of(task, tmp_path, label_smoothing_factor=smoothing)
    inputs = batch(task)
    theirs = dict(inputs)
    if task == "seq2seq-lm":
        theirs["decoder_input_ids"] = trainer.model.decoder_inputs(IDS, inputs["labels"])
    expected = Trainer.compute_loss(trainer, trainer.model, theirs, num_items_in_batch=items)
    for mode in ("auto", "always"):
        with fast_paths(chunked_loss=mode):
            found = trainer.compute_loss(trainer.model, dict(inputs), num_items_in_batch=items)
        torch.testing.assert_close(found, expected)
    assert (trainer.label_smoother is None) == (smoothing == 0.0), "the smoother was lost"


@pytest.mark.parametrize(
    ("task", "is_native"),
    [("masked-language-modeling", False), ("masked-next-token", False), ("masked-language-modeling", True)],
)
def test_a_block_without_masks_has_no_gradient(task, is_native, tmp_path):
    """By itself it would divide by no labels; next to another it adds nothing."""
    model = zoo.build("gpt-bert-style@tiny", "masked-lm", vocab_size=20, seed=0, masked_next_token="next" in task)
    if is_native:
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        dropouts = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
        model = BertForMaskedLM(BertConfig(vocab_size=20, **sizes, **dropouts))
    ids = [torch.arange(3, 9).numpy(), torch.arange(4, 10).numpy()]
    labels = [torch.tensor([-100, 5, -100, 7, -100, -100]).numpy(), torch.full((6,), -100).numpy()]
    kind = {"causal_rows": False} if "next" in task else {}
    blocks = [{"input_ids": one, "labels": own, **kind} for one, own in zip(ids, labels, strict=True)]
    settings = {"optim": "sgd", "learning_rate": 0.1, "max_steps": 1, "use_cpu": True, "lr_scheduler_type": "constant"}
    settings |= {"per_device_train_batch_size": 1, "max_grad_norm": 0.0, "train_sampling_strategy": "sequential"}
    weights = {}
    for name, data, batches in (("both", blocks, 2), ("first", blocks[:1], 1), ("second", blocks[1:], 1)):
        args = training_arguments({**settings, "gradient_accumulation_steps": batches}, output_dir=tmp_path, seed=0)
        collator = find_task(task).collator(SimpleNamespace(source=SimpleNamespace(pad_token_id=0)))
        trained = copy.deepcopy(model)
        ZooTrainer(model=trained, args=args, data_collator=collator, train_dataset=Rows(data)).train()
        weights[name] = trained.state_dict()
    torch.testing.assert_close(weights["both"], weights["first"])
    torch.testing.assert_close(weights["second"], model.state_dict())
    head = next(name for name, weight in model.named_parameters() if weight is model.get_output_embeddings().weight)
    assert not torch.equal(weights["first"][head], model.state_dict()[head])


@pytest.mark.parametrize(
    ("kind", "task"),
    [
        (BertForMaskedLM, "masked-lm"),
        (BertForTokenClassification, "token-classification"),
        (GPT2ForSequenceClassification, "sequence-classification"),
        (GPT2LMHeadModel, "causal-lm"),
    ],
)
def test_parts_of_an_update_of_transformers_models_weigh_as_much_as_they_have_labels(kind, task, tmp_path):
    sizes = dict(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_labels=20)
    config = (GPT2Config if "GPT2" in kind.__name__ else BertConfig)(**sizes, pad_token_id=0)
    trainer = ZooTrainer(
        model=kind(config).eval(), args=training_arguments({"use_cpu": True}, output_dir=tmp_path, seed=0)
    )
    inputs = batch(task)
    logits = trainer.model(input_ids=IDS, attention_mask=inputs.get("attention_mask")).logits
    labels = inputs["labels"]
    if task == "causal-lm":
        inputs["shift_labels"] = labels
    expected = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="sum") / 31
    trainer.model.training = True  # without dropout, as the parts of the model still evaluate
    loss = trainer.compute_loss(trainer.model, inputs, num_items_in_batch=torch.tensor(31))
    torch.testing.assert_close(loss, expected)


def test_a_run_is_tried_on_a_block_that_has_masks(tmp_path):
    (tmp_path / "text.txt").write_text("to be " * 300, encoding="utf-8")
    options = {"max_steps": 1, "warmup_steps": 0, "use_cpu": True, "seed": 7, "tokenizer": "word", "progress": False}
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    task, data = "masked-language-modeling:block_size=8,mlm_probability=0.05", tmp_path / "text.txt"
    assert train("pre-norm", task, data=data, settings=sizes, **options).report.heldout_loss > 0


def test_logits_are_computed_where_they_are_read(tmp_path, monkeypatch):
    trainer = trainer_of("causal-lm", tmp_path, label_smoothing_factor=0.1)
    made = []
    forward = trainer.model.forward
    monkeypatch.setattr(
        trainer.model, "forward", lambda **given: (out := forward(**given), made.append(out.logits is not None))[0]
    )
    trainer.compute_loss(trainer.model, batch("causal-lm"))
    loss, logits, _ = trainer.prediction_step(trainer.model, batch("causal-lm"), prediction_loss_only=True)
    plain, seen, _ = trainer.prediction_step(trainer.model, batch("causal-lm"), prediction_loss_only=False)
    assert made == [False, False, True] and logits is None and seen.shape == (2, 6, 20)
    torch.testing.assert_close(loss, plain)
    monkeypatch.setattr(trainer, "is_fsdp_enabled", True)
    trainer.compute_loss(trainer.model, batch("causal-lm"))
    assert made[-1], "a projection with weights elsewhere was called from outside of its module"


def test_an_evaluation_leaves_out_the_loss_of_routers(tmp_path):
    model = zoo.build("mixtral-style@tiny", "causal-lm", vocab_size=20, seed=0, output_router_logits=True)
    arguments = training_arguments({"use_cpu": True}, output_dir=tmp_path, seed=0)
    trainer = ZooTrainer(model=model.eval(), args=arguments)
    plain = model(**batch("causal-lm"), output_router_logits=False).loss
    assert model(**batch("causal-lm")).loss > plain
    loss, _, _ = trainer.prediction_step(trainer.model, batch("causal-lm"), prediction_loss_only=True)
    torch.testing.assert_close(loss, plain)


def test_gradients_are_clipped_as_transformers_clips_them(tmp_path):
    trainer = trainer_of("causal-lm", tmp_path, max_grad_norm=0.1)
    trainer.compute_loss(trainer.model, batch("causal-lm")).backward()
    before = {name: weight.grad.clone() for name, weight in trainer.model.named_parameters()}
    norm = trainer._clip_grad_norm(trainer.model)
    clipped = {name: weight.grad.clone() for name, weight in trainer.model.named_parameters()}
    for name, weight in trainer.model.named_parameters():
        weight.grad = before[name]
    torch.testing.assert_close(norm, Trainer._clip_grad_norm(trainer, trainer.model), rtol=0, atol=0)
    for name, weight in trainer.model.named_parameters():
        torch.testing.assert_close(clipped[name], weight.grad, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ({"per_device_train_batch_size": 8}, "=4 and gradient_accumulation_steps=2,.*; or gradient_checkpointing=True"),
        ({"per_device_train_batch_size": 1, "gradient_checkpointing": True}, "shorter sequences or a smaller model"),
    ],
)
def test_a_lack_of_memory_is_named_with_advice(few, tiny, monkeypatch, arguments, advice):
    def no_memory(*args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(ZooTrainer, "training_step", no_memory)
    with pytest.raises(TrainingError, match=f"^the memory of cpu is not enough .*{advice}"):
        train("pre-norm", data=few, **{**tiny, **arguments})
