"""Training on prepared folders: by memory map, in one order, with the folder's own tokenizer."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from corpora.recorded import SETTINGS, by_update, forget_after, keeping_checkpoints, run, run_on
from safetensors.torch import load_file

from zoo.base.errors import ConfigError, DataError
from zoo.base.folders import read_result
from zoo.cli.main import cli
from zoo.data.tasks import find_task, load_tokenizers
from zoo.data.tokenizers import train_tokenizers
from zoo.training import train

WORDS = (("old", "cat", "dog"), ("red", "fox", "sea"))
SENTENCES = [f"The {a} {b} number {n} sees the {c}." for n in range(40) for a, b, c in WORDS]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for name, sentences in (("train", SENTENCES), ("validation", [SENTENCES[0], "A sentence of its own."])):
        lines = [json.dumps({"text": sentence}) for sentence in sentences]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    others = [json.dumps({"text": f"Another sentence, number {number}."}) for number in range(40)]
    (folder.parent / "other.jsonl").write_text("\n".join(others) + "\n")
    out = folder / "prepared"
    words = ["data", "prepare", str(folder), "-o", str(out), "--quiet", "--json"]
    done = CliRunner().invoke(
        cli, [*words, "--tokenizer", "bpe:vocab_size=300", "--task", "masked-language-modeling"], catch_exceptions=False
    )
    assert done.exit_code == 0 and json.loads(done.stdout)["shards"][0]["heldout"] == 1, done.output
    return out


@pytest.mark.filterwarnings("ignore:1 example")
def test_the_order_is_that_of_the_seed_with_any_accumulation_and_interruptions(prepared, tmp_path):
    whole = by_update(run(tmp_path / "whole", prepared, 1, 6))
    assert all(len(blocks) == 8 for blocks in whole.values()) and len(whole) == 6
    assert by_update(run(tmp_path / "accumulated", prepared, 1, 6, accumulation=2)) == whole
    others = (run(tmp_path / name, prepared, 1, 6, **{name: 1}) for name in ("seed", "data_seed"))
    assert whole not in [by_update(other) for other in others]


@pytest.mark.filterwarnings("ignore:1 example")
def test_blocks_can_be_read_in_their_own_order(prepared, tmp_path):
    seen = [block for _, block in run(tmp_path / "m", prepared, 1, 2, train_sampling_strategy="sequential")]
    task = find_task("language-modeling:block_size=16")
    blocks = task.encode(task.load(prepared).train, load_tokenizers(prepared))
    assert seen == [blocks[number]["input_ids"].tolist() for number in range(16)]


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:1 example")
@pytest.mark.parametrize("kind", ["prepared", "packed", "mixed", "streamed"])
def test_every_number_of_processes_reads_the_same_examples_in_each_update(prepared, tmp_path, kind):
    options = {"packed": ",packing=documents", "streamed": ",streaming=true"}.get(kind, "")
    task, source = f"language-modeling:block_size=16{options}", prepared.parent / "train.jsonl"
    data = {"mixed": f"{source}=3+{source.parents[1] / 'other.jsonl'}=1", "streamed": source}.get(kind, prepared)
    whole = by_update(run(tmp_path / "whole", data, 1, 6, task=task))
    for processes in (2, 4):
        assert run_on(processes, tmp_path / f"on-{processes}", data, 6, task=task, resume=True) == whole
    for before, after in ((2, 4), (4, 2)):
        folder = tmp_path / f"on-{before}"
        forget_after(folder, 4)
        rest = run_on(after, folder, data, 6, task=task, resume=True, force=True)
        assert rest == {number: whole[number] for number in (4, 5)}


@pytest.mark.filterwarnings("ignore:1 example")
def test_a_resumed_run_reads_the_next_update(prepared, tmp_path):
    with keeping_checkpoints():
        whole = by_update(run(tmp_path / "whole", prepared, 1, 4, resume=True))
    forget_after(tmp_path / "whole", 2)
    rest = by_update(run(tmp_path / "whole", prepared, 1, 4, resume=True, force=True))
    assert rest == {number: whole[number] for number in (2, 3)}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:1 example")
@pytest.mark.parametrize("average", ["ema", pytest.param("lawa", marks=pytest.mark.nightly)])
def test_a_run_goes_on_with_the_next_update_and_the_same_average_on_two_processes(prepared, tmp_path, average):
    options = {"average": average, "average_last": 1.0, "average_decay": 0.5, "resume": True}
    options |= {"optim": "sgd", "learning_rate": 0.1}  # Adam makes whole steps of rounding
    with keeping_checkpoints():
        whole = by_update(run(tmp_path / "whole", prepared, 1, 4, **options))
    shutil.copytree(tmp_path / "whole-checkpoints", tmp_path / "cut-checkpoints")
    forget_after(tmp_path / "cut", 2)
    rest = run_on(2, tmp_path / "cut", prepared, 4, **options)
    assert rest == {number: whole[number] for number in (2, 3)}
    ours, theirs = (load_file(tmp_path / f"{name}-average/model.safetensors") for name in ("cut", "whole"))
    reports = [read_result(tmp_path / name)["report"]["average"] for name in ("cut", "whole")]
    assert reports[0]["updates"] == reports[1]["updates"] == 4
    assert reports[0]["heldout_loss"] == pytest.approx(reports[1]["heldout_loss"], abs=1e-5)
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=0, atol=1e-5, msg=name)


@pytest.mark.parametrize("tokenizer", ["character", "bpe:vocab_size=300"])
def test_another_kind_of_tokenizer_is_refused(prepared, tokenizer):
    with pytest.raises(ConfigError, match="leave it out"):
        train("gpt2-style@tiny", "language-modeling", data=prepared, tokenizer=tokenizer, max_steps=1, progress=False)


@pytest.mark.filterwarnings("ignore:1 example")
def test_a_masked_model_is_trained_on_prepared_blocks(prepared, tmp_path):
    task = "masked-language-modeling:block_size=16"
    result = small(prepared, "bert-style", task, output_dir=tmp_path / "out", max_steps=2)
    assert result.report.heldout_loss > 0 and result.run.data.duplicates == 1
    vocabulary = load_tokenizers(prepared).source.get_vocab()
    assert load_tokenizers(tmp_path / "out").source.get_vocab() == vocabulary


def test_blocks_of_shards_are_those_of_the_texts(prepared):
    task = find_task("language-modeling:block_size=16")
    tokenizers = load_tokenizers(prepared)
    from_shards = task.encode(task.load(prepared).train, tokenizers, training=True)
    end = [tokenizers.source.eos_token_id]
    ids = [i for text in SENTENCES[1:] for i in tokenizers.source.encode(text, add_special_tokens=False) + end]
    expected = [ids[start : start + 17] for start in range(0, len(ids) - 1, 16)]
    assert [[*block["input_ids"].tolist(), block["labels"][-1]] for block in from_shards] == expected


def test_a_tokenizer_that_was_called_with_truncation_is_the_same(prepared):
    task, tokenizers = find_task("language-modeling"), load_tokenizers(prepared)
    tokenizers.source("x", truncation=True, padding="max_length", max_length=3)
    assert len(task.encode(task.load(prepared).train, tokenizers, training=True)) > 1


def test_another_tokenizer_and_another_heldout_file_are_refused(prepared, tmp_path):
    task, other = find_task("language-modeling"), train_tokenizers(SENTENCES, kind="character")
    with pytest.raises(DataError, match="was prepared with another tokenizer"):
        task.encode(task.load(prepared).train, other, training=True)
    with pytest.raises(DataError, match="name the held-out texts at preparation"):
        task.load(prepared, heldout=tmp_path / "x.txt")


def test_the_last_documents_of_shards_are_set_aside_to_choose_a_checkpoint_by(prepared):
    task, tokenizers = find_task("language-modeling:block_size=16"), load_tokenizers(prepared)
    whole = task.load(prepared).train
    parts = [part.row(tokenizers) for part in task.set_aside(whole)]
    ids = [row[0 : len(row)].tolist() for row in parts]
    row, end = whole.row(tokenizers), tokenizers.source.eos_token_id
    assert ids[0] + ids[1] == row[0 : len(row)].tolist() and 0 < len(ids[1]) <= 0.05 * len(row) + 20
    assert ids[0][-1] == ids[1][-1] == end
    inner = task.set_aside(task.set_aside(whole).train)
    assert sum(len(part.row(tokenizers)) for part in inner) == len(ids[0])
    assert len({part.sha256 for part in (whole, *task.set_aside(whole), *inner)}) == 5


@pytest.mark.filterwarnings("ignore:1 example")
def test_the_best_checkpoint_is_chosen_by_the_end_of_the_shards(prepared, tmp_path):
    best = {"eval_strategy": "steps", "eval_steps": 1, "load_best_model_at_end": True}
    result = small(prepared, output_dir=tmp_path / "out", max_steps=2, save_strategy="steps", save_steps=1, **best)
    assert result.run.data.selection is not None and result.report.best_step in (1, 2)


def small(data, name="gpt2-style", task="language-modeling:block_size=16", **options):
    return train(name, task, data=data, settings=SETTINGS, progress=False, **options)


@pytest.mark.filterwarnings("ignore:1 example")
@pytest.mark.parametrize("decay", [None, 0.5, 4])
def test_warmup_stable_decay_needs_no_number_of_steps(prepared, decay):
    schedule = {} if decay is None else {"lr_scheduler_kwargs": {"num_decay_steps": decay}}
    schedule |= {"warmup_steps": 2, "learning_rate": 0.01, "lr_scheduler_type": "warmup_stable_decay"}
    result = small(prepared, max_steps=10, **schedule, logging_steps=1, scored=False)
    rates = [entry["learning_rate"] for entry in result.report.history]
    falling = {None: 2, 0.5: 5, 4: 4}[decay]
    assert rates[2] == 0.01 and [rate < 0.01 for rate in rates[2:]] == [n > 8 - falling for n in range(8)]
    assert {"tokens", "grad_norm"} <= set(result.report.history[-1])


@pytest.mark.filterwarnings("ignore:1 example")
def test_a_warmup_and_a_decay_fit_into_the_run(prepared):
    schedule = {"max_steps": 5, "lr_scheduler_type": "warmup_stable_decay", "logging_steps": 1, "scored": False}
    halves = small(prepared, **schedule, warmup_steps=0.5, lr_scheduler_kwargs={"num_decay_steps": 0.5})
    rates = [entry["learning_rate"] for entry in halves.report.history]
    assert sorted(rates[:4]) == rates[:4] and rates[3] > rates[4] == rates[3] / 2
    for warmup, decay, updates in ((4, 0.4, 2), (2, 4, 4), (0.8, 0.3, 2)):
        both = {"warmup_steps": warmup, "lr_scheduler_kwargs": {"num_decay_steps": decay}}
        with pytest.raises(ConfigError, match=f"updates and the decay of {updates} are longer than the run of 5"):
            small(prepared, **schedule, **both)


def test_a_plan_has_the_tokens_and_updates_of_an_epoch(prepared):
    words = ["plan", "gpt2-style", "--devices", "1", "--tokens-per-update", "1024", "--data", str(prepared)]
    (plan,) = json.loads(CliRunner().invoke(cli, [*words, "--json"], catch_exceptions=False).stdout)
    tokens = json.loads((prepared / "zoo-shards.json").read_text())["shards"][0]["tokens"]
    assert plan["epoch_tokens"] == tokens and plan["epoch_updates"] == tokens / plan["tokens_per_update"]
    assert f"An epoch of {prepared}: {tokens:,} tokens" in CliRunner().invoke(cli, words, env={"COLUMNS": "300"}).stdout
    wrong = CliRunner().invoke(cli, [*words[:-1], str(prepared / "shards")], standalone_mode=False)
    assert isinstance(wrong.exception, DataError)
