"""What is known before the first step is said before it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from transformers import BertConfig, BertForMaskedLM, BertLMHeadModel, BertModel, GPT2LMHeadModel

import zoo
from zoo.base.errors import ConfigError, InvalidChoiceError, SequenceTooLongError, TokenIdError, UnknownOverrideError
from zoo.data.tasks import Splits, find_task
from zoo.data.tasks.reading import documents
from zoo.registry import describe
from zoo.training import PreflightError, arguments, train
from zoo.training.arguments import check_trackers, device_settings, training_arguments
from zoo.training.preflight import check_disk, check_memory, check_step, rehearse, step_memory
from zoo.training.trainer import ZooTrainer


@pytest.fixture(autouse=True)
def no_step(monkeypatch):
    """Fails where something is trained after all."""
    monkeypatch.setattr(ZooTrainer, "train", lambda *args, **kwargs: pytest.fail("training has begun"))


def test_a_sequence_longer_than_the_table(few, tiny):
    pairs = {name: list(few.train[name]) for name in few.train.column_names}
    pairs["pt"][7] = " ".join(["gato"] * 20)
    data = Splits(Dataset.from_dict(pairs), few.heldout)
    with pytest.raises(SequenceTooLongError, match=r"training example 8 has 21 target tokens.*position_embeddings=16"):
        train("vanilla:max_position_embeddings=16", data=data, **tiny)
    with pytest.raises(SequenceTooLongError, match="held-out example 3"):
        train("vanilla:max_position_embeddings=16", data=Splits(few.train, data.train.select([1, 2, 7])), **tiny)


def test_ids_beyond_the_vocabulary(few, tiny):
    model = zoo.build("pre-norm", "seq2seq-lm", vocab_size=20, decoder_vocab_size=20, hidden_size=16)
    with pytest.raises(TokenIdError, match=r"line \d+ has the source token id \d+.*has 20 ids"):
        train(model, data=few, **tiny)


def test_no_parameter_to_train(few, tiny):
    model = zoo.build("pre-norm@tiny", "seq2seq-lm", vocab_size=2000, decoder_vocab_size=2000).requires_grad_(False)
    with pytest.raises(PreflightError, match="no parameter of the model would be trained"):
        train(model, data=few, **tiny)


def test_no_examples(few, tiny):
    with pytest.raises(PreflightError, match="there are no held-out examples"):
        train("pre-norm", data=Splits(few.train, few.train.select([])), **tiny)


@pytest.mark.parametrize(
    ("name", "joint", "message"),
    [
        ("odom-style+faithful", True, "works-on-features"),
        ("odom-style+faithful:tie_word_embeddings=False", False, "cannot be trained on translation: .*on-features"),
        ("explicando+faithful", True, "cannot be trained on translation: .* of one length"),
        ("explicando+memory-makes-queries", True, "cannot be trained on translation: .* of one length"),
    ],
)
def test_variants_that_this_data_does_not_suit(few, tiny, name, joint, message):
    with pytest.raises((PreflightError, ConfigError), match=message):
        train(name, data=few, **{**tiny, "tokenizer": {"kind": "word", "joint": joint}})
    assert any("trained" in limit for limit in describe(name.partition("+")[0]).limits)


def test_a_rehearsal_changes_nothing(few, tiny):
    model = zoo.build("explicando+embedding-never-learns", "seq2seq-lm", hidden_size=16, num_attention_heads=2)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    rows = Dataset.from_dict({"input_ids": [[4, 5, 2], [6, 2]], "labels": [[7, 2], [8, 9, 2]], "length": [5, 5]})

    def collate(examples):
        padded = {"input_ids": 0, "labels": -100}
        columns = {name: [torch.tensor(row[name]) for row in examples] for name in padded}
        pad = torch.nn.utils.rnn.pad_sequence
        return {name: pad(rows, batch_first=True, padding_value=padded[name]) for name, rows in columns.items()}

    assert rehearse(model, rows, collate) == ["model.encoder.embed_tokens.weight"]
    assert torch.equal(torch.rand(1), expected) and not model.training
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_rehearsal_counts_no_use_of_experts():
    model = zoo.build("deepseek-v3-style@tiny", seed=0)
    rows = Dataset.from_dict({"input_ids": [[4, 5, 6, 7]], "labels": [[4, 5, 6, 7]]})
    rehearse(model, rows, lambda batch: {name: torch.tensor([row[name] for row in batch]) for name in batch[0]})
    loads = [buffer for name, buffer in model.named_buffers() if name.endswith("router.load")]
    assert loads and not torch.cat(loads).any()


@pytest.mark.parametrize("kind", [None, BertForMaskedLM, GPT2LMHeadModel, BertModel])
def test_a_model_for_another_task_is_neither_trained_nor_evaluated(kind):
    """A masked language model sees the next token; a causal one shifts the labels of masked tokens."""
    texts = documents(["a cat sat here", "a dog ran far away"] * 4)
    tokenizers = find_task("masked-language-modeling").train_tokenizers(texts, kind="word", min_frequency=1)
    sizes = {"vocab_size": len(tokenizers.source), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = zoo.build("bert-style", "masked-lm", **sizes) if kind is None else kind(kind.config_class(**sizes))
    wrong = "masked-language-modeling" if kind is GPT2LMHeadModel else "language-modeling"
    with pytest.raises(ConfigError, match=f"{wrong}' needs a model for .* is a {type(model).__name__} for [cfm]"):
        train(model, wrong, data=Splits(texts, texts.select([0])), tokenizer=tokenizers, max_steps=1, progress=False)
    with pytest.raises(ConfigError, match=f"{wrong}' needs a model for .* is a {type(model).__name__} for [cfm]"):
        zoo.evaluate(model, wrong, data=texts, tokenizer=tokenizers)


def test_a_causal_model_that_sees_later_tokens_is_refused():
    texts = documents(["a cat sat here", "a dog ran far away"] * 4)
    tokenizers = find_task("language-modeling").train_tokenizers(texts, kind="word", min_frequency=1)
    sizes = {"vocab_size": len(tokenizers.source), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    given, task = {"tokenizer": tokenizers, "n_bootstrap": 1}, "language-modeling:block_size=8"
    bidirectional = BertLMHeadModel(BertConfig(**sizes))
    with pytest.raises(ConfigError, match="BertLMHeadModel sees the tokens that it is to predict"):
        zoo.evaluate(bidirectional, task, data=texts, **given)
    with pytest.raises(ConfigError, match="BertLMHeadModel sees the tokens that it is to predict"):
        train(bidirectional, task, data=Splits(texts, texts.select([0])), tokenizer=tokenizers, progress=False)
    assert zoo.evaluate(BertLMHeadModel(BertConfig(**sizes, is_decoder=True)), task, data=texts, **given).loss > 0


def test_memory_and_disk(tmp_path, monkeypatch):
    adamw, adafactor, muon = (
        training_arguments({"optim": optim, "use_cpu": True}, output_dir=tmp_path, seed=0)
        for optim in ("adamw_torch_fused", "adafactor", "muon")
    )
    assert [check_memory(100, args, None) for args in (adamw, adafactor, muon)] == [1600, 800, 1200]
    frozen = zoo.build("gpt2-style@tiny", vocab_size=50, tie_word_embeddings=False)
    frozen.model.requires_grad_(False)
    size = frozen.num_parameters()
    assert check_memory(size, adamw, None, frozen) == 4 * size + 12 * frozen.lm_head.weight.numel()
    with pytest.raises(PreflightError, match=r"at least 16.0 GiB .* the cpu has 8.0 GiB"):
        check_memory(2**30, adamw, 2**33)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=4 * 2**30))
    room = tmp_path / "a" / "b"
    assert check_disk(2**30, adamw, room, saves=False) == 4 * 2**30
    with pytest.raises(PreflightError, match=r"28.00 GiB will be written to .*, and 4.00 GiB are free"):
        check_disk(2**30, adamw, room, saves=True)


@pytest.mark.thorough
def test_a_batch_that_an_accelerator_has_no_room_for(tmp_path):
    model = zoo.build("gpt2-style", vocab_size=50, hidden_size=32, num_hidden_layers=4, num_attention_heads=2, seed=0)
    given = {"per_device_train_batch_size": 8, "use_cpu": True}
    args = training_arguments(given, output_dir=tmp_path, seed=0)
    needed = step_memory(model, args, seq_len=16)
    check_step(model, args, 16, needed)
    with pytest.raises(PreflightError, match=r"8 sequences of 16 tokens .* has .*_size=4 and gradient_accum.*_steps=2"):
        check_step(model, args, 16, needed // 2)
    fewer = training_arguments({**given, "per_device_train_batch_size": 4}, output_dir=tmp_path, seed=0)
    again = training_arguments({**given, "gradient_checkpointing": True}, output_dir=tmp_path, seed=0)
    assert all(step_memory(model, lighter, seq_len=16) < needed for lighter in (fewer, again))
    check_step(torch.nn.Linear(2, 2), args, 16, 1)
    model.set_attn_implementation("flex_attention")  # which cannot be run without values
    assert step_memory(model, args, seq_len=16) == pytest.approx(needed, rel=0.01)
    capped = zoo.build("gemma2-style@tiny", vocab_size=50, attn_implementation="flex_attention")
    check_step(capped, args, 16, 1)
    with pytest.raises(PreflightError, match="8 sequences of 16 tokens"):
        check_step(zoo.build("mixtral-style@tiny", vocab_size=50), args, 16, 1)


def test_what_a_gpu_has_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.accelerator.is_available", lambda: True)
    for capability, has_bfloat16 in (((9, 0), True), ((7, 5), False)):
        monkeypatch.setattr("torch.cuda.get_device_capability", lambda capability=capability: capability)
        monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation, has=has_bfloat16: has)
        settings = device_settings(use_cpu=False)
        assert (settings["bf16"], settings["tf32"]) == (has_bfloat16, has_bfloat16 or None)
        assert settings["dataloader_pin_memory"] and settings["accelerator_config"] == {"non_blocking": True}
    assert device_settings(use_cpu=True)["use_cpu"] and not device_settings(use_cpu=True)["bf16"]
    args = training_arguments({"use_cpu": True}, output_dir=tmp_path, seed=0)
    assert args.optim == "adamw_torch_fused" and not args.accelerator_config.non_blocking


def test_trackers_that_are_not_installed(monkeypatch):
    monkeypatch.setattr(arguments, "find_spec", lambda package: package == "tensorboardX" or None)
    with pytest.raises(ConfigError, match="pip install trackio"):
        check_trackers(["none", "trackio"])
    check_trackers(["tensorboard"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"generation": {"num_beam": 2}}, "did you mean 'num_beams'"),
        ({"generation": {"num_beams": 0}}, "num_beams=0 is not valid"),
        ({"task": "span-corruption"}, "generation={'num_beams': 2, .* no text is generated for span-corruption"),
        ({"learning_rate": float("inf")}, "learning_rate=inf is not valid; valid: 0 and more"),
        ({"per_device_train_batch_size": 0}, "valid: 1 and more"),
        ({"seed": 2**32}, "valid: 0 to 4294967295"),
        ({"data_seed": -1}, "data_seed=-1 is not valid; valid: 0 to 4294967295"),
        ({"early_stopping_patience": 0}, "valid: 1 and more, whole numbers"),
        ({"num_train_epochs": 0, "max_steps": -1}, "num_train_epochs=0 is not valid; valid: above 0"),
        ({"max_steps": -3}, "max_steps=-3 is not valid; valid: 1 and more"),
        ({"num_train_epochs": -1, "max_steps": -1}, "num_train_epochs=-1 is not valid"),
        ({"label_smoothing_factor": 2}, "valid: 0 to 1"),
        (
            {"settings": {"vocab_size": 3}},
            r"vocab_size=3 was given for 'pre-norm', and is \d+ with this data and tokenizer: .*bpe:vocab_size=3",
        ),
        ({"settings": {"eos_token_id": 9}}, "eos_token_id=9 was given .*: leave it out$"),
        ({"dataloader_drop_last": True, "per_device_train_batch_size": 41}, "no batch of 41 of 40 training examples"),
        ({"with_code": True}, "with_code was given without push"),
        ({"use_liger_kernel": True}, "none into the zoo's: leave it out"),
        # Averages, and checkpoints at numbers of tokens
        ({"checkpoint_at": "1M,many"}, "checkpoint_at='many' is no number"),
        ({"checkpoint_at": "0"}, "checkpoint_at='0' is no number"),
        ({"checkpoint_at": "1M", "checkpoint_in": "bytes"}, "tokens, words"),
        ({"checkpoint_at": "1M", "checkpoint_in": "words"}, "words are not counted in the data of transl"),
        ({"average": "mean"}, "ema, lawa"),
        ({"average": "ema", "average_last": 2}, "average_last=2"),
        ({"z_loss": -1}, "z_loss=-1"),
    ],
)
def test_options_that_would_be_used_late(few, tiny, given, message, tmp_path):
    with pytest.raises((ConfigError, InvalidChoiceError, UnknownOverrideError), match=message):
        train("pre-norm", data=few, output_dir=tmp_path / "model", **{**tiny, **given})
    assert not list(tmp_path.iterdir())


def test_what_a_file_holds_is_named_with_its_line(tmp_path, tiny):
    file = tmp_path / "pairs.tsv"
    rows = [("eu", "I"), *[("um gato", "a cat")] * 20, (" ".join(["gato"] * 20), "cats"), *[("dois", "two")] * 20]
    file.write_text("pt\ten\n\n" + "".join(f"{pt}\t{en}\n" for pt, en in rows), encoding="utf-8")
    with pytest.raises(SequenceTooLongError, match=r"pairs\.tsv, line 24 has 21 source tokens"):
        train("vanilla:max_position_embeddings=16", data=file, **tiny)
