"""What pretraining uses: averages of weights, a loss on the softmax's normalizer, models at given numbers of tokens."""

import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

import zoo
from zoo.base.errors import CheckpointError, ConfigError, OutputExistsError, ZooWarning
from zoo.base.folders import read_result
from zoo.data.tasks import find_task
from zoo.training import train
from zoo.training.arguments import ZooTrainingArguments, training_arguments
from zoo.training.averaging import WeightAverage
from zoo.training.saving import read_marks
from zoo.training.trainer import ZooTrainer

STEPS = 10


class Weights(TrainerCallback):
    """Keeps the weights after every update."""

    def __init__(self) -> None:
        self.kept: list[dict[str, torch.Tensor]] = []

    def on_step_end(self, args, state, control, model, **kwargs) -> None:
        self.kept.append({name: weight.detach().clone() for name, weight in model.named_parameters()})


def expected_average(kept: list[dict[str, torch.Tensor]], kind: str, decay: float) -> dict[str, torch.Tensor]:
    average = {name: weight.double() for name, weight in kept[0].items()}
    for number, weights in enumerate(kept[1:], start=1):
        share = 1 - decay if kind == "ema" else 1 / (number + 1)
        average = {name: average[name] + share * (weights[name] - average[name]) for name in average}
    return average


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text("a cat and a dog ran far away from here.\n" * 200)
    return file


@pytest.mark.parametrize(("kind", "every"), [("ema", 1), ("lawa", 1), ("lawa", 2)])
def test_weights_of_the_last_part_are_averaged_and_evaluated(kind, every, few, tiny, tmp_path):
    seen = Weights()
    out = tmp_path / "model"
    options = {"average": kind, "average_last": 0.4, "average_steps": every}
    options |= {"average_decay": 0.6} if kind == "ema" else {}
    steps = {"max_steps": STEPS, "eval_strategy": "steps", "eval_steps": 5}
    result = train("pre-norm", data=few, output_dir=out, callbacks=[seen], **{**tiny, **steps}, **options)
    taken = seen.kept[-4:] if every == 1 else seen.kept[-3::2]
    average = expected_average(taken, kind, 0.6)
    saved = load_file(tmp_path / "model-average/model.safetensors")
    for name in saved:
        torch.testing.assert_close(saved[name].double(), average[name], rtol=0, atol=1e-6)
        torch.testing.assert_close(result.model.state_dict()[name], seen.kept[-1][name], rtol=0, atol=0)
    shown = result.report.average
    assert (shown["kind"], shown["updates"], set(shown["scores"])) == (kind, len(taken), set(result.report.scores))
    first, last = result.report.evaluations
    assert "eval_average_loss" not in first and last["eval_average_loss"] != last["eval_loss"]
    evaluated = zoo.evaluate(tmp_path / "model-average", data=few.heldout)
    assert evaluated.loss == pytest.approx(shown["heldout_loss"], rel=1e-5)
    assert read_result(out)["report"]["average"] == shown


@pytest.mark.parametrize(
    ("name", "task"), [("bert-style", "masked-language-modeling"), ("gpt-bert-style", "masked-next-token")]
)
def test_averaged_weights_are_evaluated_with_the_same_masks(name, task, tmp_path):
    text = "".join(f"{n} {n * n} is a square, and {n + 1} is next.\n" for n in range(60))
    (tmp_path / "text.txt").write_text(text)
    kept = {"average": "lawa", "average_last": 1.0, "learning_rate": 1e-12, "max_steps": 2, "warmup_steps": 0}
    kept |= {"eval_strategy": "steps", "eval_steps": 1, "per_device_train_batch_size": 8, "use_cpu": True}
    settings = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    data = {"data": tmp_path / "text.txt", "tokenizer": "character", "settings": settings}
    result = train(name, f"{task}:block_size=16", **data, output_dir=tmp_path / "m", progress=False, **kept)
    losses = [loss for entry in result.report.evaluations for loss in (entry["eval_loss"], entry["eval_average_loss"])]
    loss = zoo.evaluate(tmp_path / "m").loss
    assert [*losses, result.report.average["heldout_loss"]] == pytest.approx([loss] * 5, rel=1e-6)
    assert result.report.heldout_loss == loss


def test_an_average_goes_on_where_a_run_was_interrupted(few, tiny, tmp_path):
    options = {"average": "ema", "average_last": 1.0, "average_decay": 0.5, "max_steps": 6}
    options |= {"resume": True, "save_strategy": "steps", "save_steps": 2}
    whole = train("pre-norm", data=few, output_dir=tmp_path / "whole", **{**tiny, **options})

    class Interruption(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train("pre-norm", data=few, output_dir=tmp_path / "cut", callbacks=[Interruption()], **{**tiny, **options})
    resumed = train("pre-norm", data=few, output_dir=tmp_path / "cut", **{**tiny, **options})
    assert resumed.report.average == whole.report.average
    for name, weight in load_file(tmp_path / "whole-average/model.safetensors").items():
        torch.testing.assert_close(load_file(tmp_path / "cut-average/model.safetensors")[name], weight, rtol=0, atol=0)


def test_an_average_that_lacks_a_tensor_is_refused(tmp_path):
    average = WeightAverage(zoo.build("pre-norm@tiny", vocab_size=9), ZooTrainingArguments(tmp_path, average="ema"))
    average.update()
    del average.weights["lm_head.weight"]
    average.save(tmp_path)
    with pytest.raises(CheckpointError, match=r"has no average of lm_head\.weight"):
        average.load(tmp_path)


@pytest.mark.parametrize(("kind", "expected"), [("ema", 3 - 0.999**200), ("lawa", 2 + 200 / 201)])
def test_weights_of_16_bits_are_averaged_in_32(kind, expected, tmp_path):
    model = zoo.build("pre-norm@tiny", vocab_size=9).bfloat16()
    average, weight = WeightAverage(model, ZooTrainingArguments(tmp_path, average=kind)), model.lm_head.weight.data
    for value in (2.0, *[3.0] * 200):
        weight.fill_(value)
        average.update()
    torch.testing.assert_close(average.weights["lm_head.weight"].mean().item(), expected, rtol=1e-5, atol=0)
    with average.in_place():
        assert weight.dtype == torch.bfloat16 and weight[0, 0] == torch.tensor(expected).bfloat16()


def test_a_run_that_ends_before_it_averages_warns(few, tiny):
    class End(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = True

    with pytest.warns(ZooWarning, match=r"ended after 1 updates, before the last 20% of its 4 updates"):
        result = train("pre-norm", data=few, average="ema", callbacks=[End()], **tiny)
    assert result.report.average is None


def test_weights_of_length_one_keep_it_in_an_average(text, tiny, tmp_path):
    options = {"data": text, "average": "lawa", "average_last": 0.5, "scored": False, "generation": None}
    train("ngpt", "language-modeling:block_size=16", output_dir=tmp_path / "model", **{**tiny, **options})
    weight = load_file(tmp_path / "model-average/model.safetensors")["model.layers.0.self_attn.q_proj.weight"]
    torch.testing.assert_close(weight.norm(dim=1), torch.ones(len(weight)))


def test_balancing_biases_are_averaged_with_the_weights(text, tiny, tmp_path):
    biases = []

    class Biases(TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **kwargs):
            biases.append(model.get_buffer(NAME).clone())

    NAME = "model.layers.1.mlp.router.balance_bias"
    settings = {**tiny["settings"], "num_hidden_layers": 2}
    options = {"data": text, "average": "lawa", "average_last": 0.75, "scored": False, "callbacks": [Biases()]}
    task, out = "language-modeling:block_size=16", tmp_path / "model"
    result = train(
        "deepseek-v3-style", task, output_dir=out, **{**tiny, "settings": settings, "generation": None, **options}
    )
    saved = load_file(tmp_path / "model-average/model.safetensors")[NAME]
    torch.testing.assert_close(saved, torch.stack(biases[1:]).mean(dim=0))
    assert torch.equal(result.model.get_buffer(NAME), biases[-1]) and not torch.equal(saved, biases[-1])


def test_a_z_loss_is_trained_on_and_not_reported_of_heldout_data(tmp_path):
    ids = torch.arange(3, 15).view(2, 6)
    inputs = {"input_ids": ids, "labels": ids}
    losses = {}
    for weight in (0.0, 0.5):
        model = zoo.build("llama-style@tiny", vocab_size=20, seed=0).train()
        args = training_arguments({"use_cpu": True, "z_loss": weight}, output_dir=tmp_path, seed=0)
        trainer = ZooTrainer(model=model, args=args)
        loss = trainer.compute_loss(model, dict(inputs)).item()
        normalizers = model(input_ids=ids).logits[:, :-1].logsumexp(dim=-1).square().mean().item()
        model.eval()
        losses[weight] = (loss, trainer.prediction_step(model, dict(inputs), prediction_loss_only=True)[0].item())
    assert losses[0.0][1] == losses[0.5][1]
    assert losses[0.5][0] == pytest.approx(losses[0.0][0] + 0.5 * normalizers, rel=1e-5)


def test_the_further_tokens_of_a_model_have_a_z_loss_too():
    model = zoo.build("multi-token-prediction@tiny", vocab_size=20, seed=0).train()
    ids = torch.arange(3, 15).view(2, 6)
    plain, with_z = (model(input_ids=ids, labels=ids, z_loss=weight) for weight in (0.0, 1.0))
    assert with_z.mtp_loss > plain.mtp_loss and with_z.loss > plain.loss


def test_what_has_no_z_loss_refuses_one(tmp_path):
    model = zoo.build("bert-style@tiny", "sequence-classification", vocab_size=20)
    args = training_arguments({"use_cpu": True, "z_loss": 1e-4}, output_dir=tmp_path, seed=0)
    with pytest.raises(ConfigError, match="z_loss=0.0001 was given"):
        ZooTrainer(model=model, args=args)


@pytest.mark.parametrize("unit", ["tokens", "words"])
def test_a_model_is_saved_after_given_numbers_of_tokens_or_words(unit, text, tiny, tmp_path):
    out = tmp_path / "model"
    marks = {"tokens": "100,0.2K", "words": "50,100"}[unit]
    named = marks.split(",")
    options = {"checkpoint_at": marks, "checkpoint_in": unit, "logging_steps": 1, "tokenizer": "character"}
    batches = {"per_device_train_batch_size": 4, "max_steps": 12 if unit == "words" else 6, "scored": False}
    seen = Weights()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ZooWarning)
        given = {**tiny, **options, **batches, "generation": None, "callbacks": [seen]}
        result = train("gpt2-style", "language-modeling:block_size=16", data=text, output_dir=out, **given)
    characters_a_word = len(text.read_text()) * 0.9 / (1800 * 0.9)
    for name, number in zip(named, (100, 200) if unit == "tokens" else (50, 100), strict=True):
        place = tmp_path / f"model-revisions/chck_{name}"
        shown = read_result(place)["checkpoint"]
        wanted = number * (1 if unit == "tokens" else characters_a_word)
        assert shown["train_tokens"] - 64 < wanted * (1 + 1e-3) and shown["train_tokens"] >= wanted * (1 - 1e-3)
        assert shown["train_tokens"] == 64 * shown["steps"] == result.report.history[shown["steps"] - 1]["tokens"]
        model = AutoModelForCausalLM.from_pretrained(place)
        for weight, kept in model.named_parameters():
            torch.testing.assert_close(kept, seen.kept[shown["steps"] - 1][weight], rtol=0, atol=0)
        assert len(AutoTokenizer.from_pretrained(place)) == model.config.vocab_size
    assert all(entry["grad_norm"] > 0 for entry in result.report.history)
    shutil.rmtree(out)
    with pytest.raises(OutputExistsError, match="chck_"):
        train("gpt2-style", "language-modeling:block_size=16", data=text, output_dir=out, **{**given, "callbacks": []})


@pytest.mark.parametrize(
    "name",
    ["language-modeling:packing=documents", "masked-language-modeling", "masked-next-token", "span-corruption"],
)
def test_tokens_of_a_word_are_as_many_as_an_epoch_counts(name, text):
    task = find_task(name, {"block_size": 16})
    examples = task.load(text).train
    tokenizers = task.train_tokenizers(examples, kind="bpe", vocab_size=400)
    encoded, collator = task.encode(examples, tokenizers, training=True), task.collator(tokenizers)
    run = SimpleNamespace(_writes=task.model_task == "seq2seq-lm")
    tokens = sum(int(ZooTrainer._tokens(run, collator([encoded[number]]))) for number in range(len(encoded)))
    words = sum(len(part.split()) for part in examples["text"])
    assert task.tokens_per_word(examples, encoded, tokenizers) == pytest.approx(tokens / words, rel=2e-3)


def test_a_number_that_is_not_reached_is_named(few, tiny, tmp_path):
    with pytest.warns(ZooWarning, match="checkpoint_at=1M was not reached: the run has"):
        train("pre-norm", data=few, output_dir=tmp_path / "model", scored=False, checkpoint_at="1M", **tiny)


def test_marks_are_read_in_rising_order():
    assert read_marks("2M, 1_000,1.5k,1B") == {"1_000": 1000, "1.5k": 1500, "2M": 2_000_000, "1B": 10**9}
