"""What is compared, as it is read from flags and from folders."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from datasets import Dataset

from zoo.base.errors import ConfigError, FormatVersionError, InvalidChoiceError, OutputExistsError, UnknownNameError
from zoo.base.files import write_json
from zoo.base.folders import locked
from zoo.comparison.files import LOCK, PLAN, RESULTS, content_hash
from zoo.comparison.plan import find_plan, make_plan
from zoo.comparison.request.seeds import Budget, read_budget, read_seeds, read_sweep, write_values
from zoo.comparison.run.search import search
from zoo.comparison.setup.shared_inputs import share_of_warmup, spend, workload
from zoo.data.corpora.shards import TokenRow
from zoo.data.tasks import find_task
from zoo.fast.chunked_loss import IGNORED
from zoo.training.arguments import training_arguments
from zoo.training.progress import overview
from zoo.training.record import digest_of_examples, first_difference


def test_seeds():
    assert read_seeds(3) == [0, 1, 2] and read_seeds("2", 5) == [5, 6]
    assert read_seeds("4,0") == [4, 0] and read_seeds([7]) == [7]
    for wrong in ("x", "1,-1", 0, [], [1, 1]):
        with pytest.raises(ConfigError, match="seeds"):
            read_seeds(wrong)


def test_budgets():
    assert read_budget(None) is None
    assert read_budget("tokens=2e6") == read_budget({"tokens": 2_000_000}) == Budget("tokens", 2e6)
    assert read_budget(str(Budget("flops", 1.5e13))) == Budget("flops", 1.5e13)
    with pytest.raises(InvalidChoiceError, match="did you mean 'tokens'"):
        read_budget("token=3")
    for wrong in ("steps=", "steps=many", "seconds=0", "seconds=nan", {"flops": -1}):
        with pytest.raises(ConfigError, match="above 0"):
            read_budget(wrong)


def test_a_budget_becomes_steps(tmp_path):
    rows = {"input_ids": [[5] * 3, [5] * 5, [5] * 4, [5] * 4, [5] * 4], "labels": [[1] * 2, [1], [1] * 3, [1], [1]]}
    given = {"per_device_train_batch_size": 2, "num_train_epochs": 4, "warmup_steps": 3}
    args = training_arguments(given, output_dir=tmp_path, seed=0)
    work = workload(Dataset.from_dict(rows), args, writes=True)
    assert (work.steps, work.source_len, work.target_len) == (12, 4, 2)
    assert work.tokens_per_step == pytest.approx(28 / 3)
    assert spend(Budget("steps", 7), work, 1) == {"max_steps": 7}
    assert spend(Budget("tokens", 280), work, 1) == {"max_steps": 30}
    assert spend(Budget("flops", 2800), work, 5) == {"max_steps": 60}
    assert share_of_warmup(3, work.steps) == {"warmup_steps": 0.25}
    assert share_of_warmup(0.1, 12) == {"warmup_steps": 0.1}
    with pytest.raises(ConfigError, match="less than one update"):
        spend(Budget("tokens", 3), work, 1)
    text = workload(Blocks([8, 8, 4]), args, writes=False)
    assert (text.tokens_per_step, text.target_len) == (10, None)
    whole = workload(Blocks([8, 8, 8]), replace(args, dataloader_drop_last=True), writes=False)
    assert (whole.steps, whole.tokens_per_step) == (4, 16), "the third block is never in a batch"
    shards = Blocks([8, 8, 8])
    shards.ids = TokenRow([])
    whole = workload(shards, args, writes=False)
    assert (whole.steps, whole.tokens_per_step) == (4, 16), "an epoch of shards has whole updates"
    assert workload(Blocks([8]), replace(args, dataloader_drop_last=True), writes=False).tokens_per_step == 8


class Blocks(list):
    ids = None

    @property
    def lengths(self):
        return np.array(list(self))

    def __getitem__(self, number):
        return {"input_ids": np.zeros(list(self)[number]), "labels": np.zeros(list(self)[number])}


@pytest.mark.parametrize(
    "task",
    [
        "language-modeling:block_size=16",
        "language-modeling:block_size=64,packing=documents",
        "masked-next-token:block_size=16",
        "span-corruption:block_size=16",
    ],
)
def test_tokens_of_an_update_are_those_that_the_trainer_counts(task, tmp_path):
    """Without the padding of packed rows, and with the sentinels and ends of spans on both sides."""
    task = find_task(task)
    (tmp_path / "texts.jsonl").write_text(
        "".join(json.dumps({"text": f"{place}: " + "to be or not " * (1 + place % 4)}) + "\n" for place in range(40))
    )
    splits = task.load(tmp_path / "texts.jsonl")
    tokenizers = task.train_tokenizers(splits.train, kind="character")
    encoded = task.encode(splits.train, tokenizers, training=True)
    args = training_arguments({"per_device_train_batch_size": 4}, output_dir=tmp_path, seed=0)
    writes = task.model_task == "seq2seq-lm"
    work = workload(encoded, args, writes=writes)
    collator, counted = task.collator(tokenizers), 0
    for number in range(len(encoded)):
        batch = collator([encoded[number]])
        counted += int((batch["input_ids"] != tokenizers.source.pad_token_id).sum())
        counted += int((batch["labels"] != IGNORED).sum()) if writes else 0
    updates = -(-len(encoded) // 4)
    assert work.tokens_per_step * updates == pytest.approx(counted, rel=0.003)
    assert f"Tokens: {counted:,}," in overview(task, splits, replace(splits, train=encoded)) or writes


def test_sweeps():
    assert read_sweep(None) == {}
    assert read_sweep("lr=1e-3,5e-4") == read_sweep({"learning_rate": [1e-3, 5e-4]}) == {"learning_rate": [1e-3, 5e-4]}
    values = read_sweep(["lr=1e-3,5e-4", "weight_decay=0"])
    assert next(search(values))[0] == [{"learning_rate": lr, "weight_decay": 0} for lr in (1e-3, 5e-4)]
    assert read_sweep([write_values(*item) for item in values.items()]) == values
    listed = {"nope_layers": [[True, False], None], "optim_args": ["a=1,b=2", "1"], "x": [{"a": 1, "b": 2}, {"a": 3}]}
    assert read_sweep([write_values(*item) for item in listed.items()]) == listed
    for wrong in ("1e-3", "lr=", "lr=1,1", ["lr=1", "learning_rate=2"]):
        with pytest.raises(ConfigError, match="sweep"):
            read_sweep(wrong)


COMMON = {"task": "copy", "data": "0123", "arguments": {"learning_rate": 1e-3}, "budget": None, "sweep": {}}


def test_a_folder_is_extended(tmp_path):
    first = make_plan(tmp_path, COMMON, ["a", "b"], [0], None)
    assert (first.names, first.seeds, first.baseline) == (["a", "b"], [0], "a")
    first.write(tmp_path)
    more = make_plan(tmp_path, COMMON, ["c", "a"], [1, 0], None)
    assert (more.names, more.seeds, more.baseline) == (["a", "b", "c"], [0, 1], "a")
    assert make_plan(tmp_path, COMMON, ["a"], [0], "b").baseline == "b"
    with pytest.raises(UnknownNameError, match="unknown baseline 'x'; valid: a, b"):
        make_plan(tmp_path, COMMON, ["a"], [0], "x")


def test_a_sweep_is_widened(tmp_path):
    swept = {**COMMON, "sweep": {"learning_rate": [1e-3, 5e-4]}}
    make_plan(tmp_path, swept, ["a"], [0], None).write(tmp_path)
    for values, both in (([1e-3, 2e-3], [1e-3, 5e-4, 2e-3]), ([5e-4], [1e-3, 5e-4])):
        wider = make_plan(tmp_path, {**COMMON, "sweep": {"learning_rate": values}}, ["a"], [0], None)
        assert wider.sweep == {"learning_rate": both}
    for values in ([[True, False]], [[True, False], [True]]):
        make_plan(tmp_path / "lists", {**COMMON, "sweep": {"nope_layers": values}}, ["a"], [0], None).write(
            tmp_path / "lists"
        )
    assert (found := find_plan(tmp_path / "lists")) is not None and found.sweep == {"nope_layers": values}
    for other in ({}, {"weight_decay": [0.1]}, {"learning_rate": [1e-3], "weight_decay": [0.1]}):
        with pytest.raises(OutputExistsError, match="sweep"):
            make_plan(tmp_path, {**COMMON, "sweep": other}, ["a"], [0], None)


def test_a_folder_of_another_comparison_is_refused(tmp_path):
    make_plan(tmp_path, COMMON, ["a"], [0], None).write(tmp_path)
    for change, message in [
        ({"data": "4567"}, "its data are others"),
        ({"task": "sort"}, "its task is copy, not sort"),
        ({"budget": "steps=3"}, "its budget is not given, not steps=3"),
        ({"arguments": {"learning_rate": 2e-3}}, "its arguments.learning_rate is 0.001, not 0.002"),
    ]:
        with pytest.raises(OutputExistsError, match=message):
            make_plan(tmp_path, {**COMMON, **change}, ["a"], [0], None)
    assert first_difference(COMMON, COMMON) is None


def test_what_another_version_has_written_is_refused(tmp_path):
    assert find_plan(tmp_path) is None
    write_json(tmp_path / RESULTS, {"format": 1})
    with pytest.raises(OutputExistsError, match="another version"):
        find_plan(tmp_path)
    (tmp_path / RESULTS).unlink()
    for written in ("[]", '{"format": 1, "na'):  # no plan, and a damaged one
        (tmp_path / PLAN).write_text(written)
        with pytest.raises(OutputExistsError, match="another version"):
            find_plan(tmp_path)
    write_json(tmp_path / PLAN, {"format": math.pi})
    with pytest.raises(FormatVersionError, match="of format"):
        find_plan(tmp_path)


def test_content_decides():
    def examples(*texts):
        return Dataset.from_dict({"text": list(texts)})

    digests = {digest_of_examples(examples(*texts)) for texts in (("a", "b"), ("b", "a"), ("ab",), ("a",))}
    assert len(digests) == 4 and digest_of_examples(examples("a")) in digests
    assert content_hash({"a": 1, "b": 2}) == content_hash({"b": 2, "a": 1}) != content_hash({"a": 1, "b": 3})


def test_one_command_at_a_time(tmp_path):
    with locked(tmp_path / LOCK) as first, locked(tmp_path / LOCK, wait=False) as second:
        assert first and not second
    with locked(tmp_path / LOCK, wait=False) as again:
        assert again
