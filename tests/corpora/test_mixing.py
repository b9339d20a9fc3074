"""Mixtures: shares, orders and epochs of several sources, and what none of them is trained on."""

import json
from collections import Counter
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from corpora.recorded import by_update, run

from zoo.base.errors import ConfigError, DataError
from zoo.cli.main import cli
from zoo.cli.parameters import data_options
from zoo.data.tasks import find_task, load_tokenizers
from zoo.data.tasks.blocks import TokenBlocks
from zoo.data.tasks.mixing import PERIOD, MixedBlocks
from zoo.data.tasks.sources import DataSource, full_path, shares_of
from zoo.data.tokenizers import train_tokenizers
from zoo.training.sampling import MixedOrder

SHARES = [0.7, 0.2, 0.1]


def blocks(sizes: list[int], shares: list[float] = SHARES) -> MixedBlocks:
    """Blocks of one token, which is 1000 times the number of the source, plus the place."""
    parts = [TokenBlocks(1000 * (source + 1) + np.arange(size + 1), 1) for source, size in enumerate(sizes)]
    return MixedBlocks(["a", "b", "c"][: len(sizes)], parts, shares)


def drawn(mixed: MixedBlocks, together: int, updates: int, seed: int = 0) -> list[int]:
    """What a run reads, through all of its epochs."""
    order, found = MixedOrder(mixed, together, seed), []
    for epoch in range(99):
        order.set_epoch(epoch)
        found += [int(mixed[number]["input_ids"][0]) for number in order]
        if len(found) >= together * updates:
            return found[: together * updates]
    raise AssertionError


@pytest.mark.parametrize("sizes", [[7, 50, 11], [100, 3, 9], [1, 1, 500]])
def test_shares_are_met_at_every_moment_and_each_source_is_read_whole_before_it_begins_again(sizes):
    mixed = blocks(sizes)
    read = drawn(mixed, 4, 40)
    for end in range(1, len(read) + 1):
        counts = Counter(block // 1000 - 1 for block in read[:end])
        assert all(abs(counts[source] - share * end) < 1 for source, share in enumerate(SHARES))
        assert [counts[source] for source in range(3)] == mixed.drawn(end)
    for source, size in enumerate(sizes):
        ours = [block % 1000 for block in read if block // 1000 - 1 == source]
        for start in range(0, len(ours) - size + 1, size):
            assert sorted(ours[start : start + size]) == list(range(size))
    result = mixed.result(len(read))
    assert all(abs(result[name]["share"] - share) < 0.01 for name, share in zip("abc", SHARES, strict=True))
    taken = [round(one["epochs"] * size) for one, size in zip(result.values(), sizes, strict=True)]
    assert taken == mixed.drawn(len(read))


def test_a_source_without_a_block_is_refused():
    with pytest.raises(DataError, match="b has fewer tokens than a block of the mixture; leave it out"):
        MixedBlocks(["a", "b"], [TokenBlocks(np.arange(size), 8, stride=1) for size in (20, 8)], [0.5, 0.5])


def test_the_order_goes_on_over_periods_and_is_another_with_another_seed():
    mixed = blocks([40_000, 3_000, 77])
    order = MixedOrder(mixed, 8, seed=0)
    whole = order.numbers(0, 3 * PERIOD)
    for start, stop in ((5, 9), (PERIOD - 1, PERIOD + 1), (2 * PERIOD, 3 * PERIOD)):
        assert order.numbers(start, stop).tolist() == whole[start:stop].tolist()
    assert drawn(mixed, 8, 20, seed=1) != drawn(mixed, 8, 20)
    assert [drawn(mixed, together, 160 // together) for together in (8, 16)] == [drawn(mixed, 4, 40)] * 2


SENTENCES = {name: [f"{name} number {n} sees {n * n}." for n in range(150)] for name in ("fox", "sea")}


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Path]:
    for name, sentences in SENTENCES.items():
        lines = [json.dumps({"text": text}) + "\n" for text in sentences]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    return {name: tmp_path / f"{name}.jsonl" for name in SENTENCES}


@pytest.mark.parametrize("task", ["language-modeling:block_size=16", "masked-language-modeling:block_size=16"])
def test_a_mixture_is_trained_on_in_one_order_with_any_accumulation(sources, tmp_path, task):
    data = f"{sources['fox']}=0.75+{sources['sea']}=0.25"
    options = {"task": task, "tokenizer": "bpe:vocab_size=400"}
    model = {"model": "bert-style"} if task.startswith("masked") else {}
    whole = by_update(run(tmp_path / "whole", data, 1, 5, **options, **model))
    assert by_update(run(tmp_path / "halves", data, 1, 5, accumulation=2, **options, **model)) == whole
    report = json.loads((tmp_path / "whole/result.json").read_text())["report"]
    shares = {Path(name).stem: round(found["share"], 3) for name, found in report["mixture"].items()}
    assert shares == {"fox": 0.75, "sea": 0.25}
    tokenizer = load_tokenizers(tmp_path / "whole").source
    both, one = ["--data", f"{sources['fox']}=1"], ["--data", f"{sources['sea']}=2"]
    examples = []
    for given in ([], both + one, one):
        done = CliRunner().invoke(cli, ["evaluate", str(tmp_path / "whole"), *given, "--json"])
        assert done.exit_code == 0, done.output
        examples.append(json.loads(done.stdout)["examples"])
    assert examples[0] == examples[1] > examples[2] > 0
    texts = Counter("fox" in tokenizer.decode(block) for blocks in whole.values() for block in blocks)
    assert texts[True] > texts[False] > 0
    with pytest.raises(ConfigError, match="sequential was given with a mixture"):
        run(tmp_path / "ordered", data, 1, 5, **options, **model, train_sampling_strategy="sequential")


def test_epochs_of_sources_that_have_fewer_blocks_than_an_update_are_those_of_the_run(sources, tmp_path):
    data, options = f"{sources['fox']}=0.5+{sources['sea']}=0.5", {"tokenizer": "bpe:vocab_size=400"}
    seen = run(tmp_path / "model", data, 1, 3, task="language-modeling:block_size=1024", model="llama-style", **options)
    mixture = json.loads((tmp_path / "model/result.json").read_text())["report"]["mixture"]
    assert len(seen) == 3 * len(by_update(seen)[0]) < 24 and [one["epochs"] for one in mixture.values()] == [3, 3]


@pytest.mark.parametrize("shares", [(0.75, 0.25), (0.1, 0.9)])
def test_a_checkpoint_is_chosen_by_a_loss_in_the_shares_of_the_mixture(tmp_path, sources, shares):
    sources["sea"].write_text(sources["sea"].read_text() * 5)
    task, tokenizers = find_task("language-modeling"), train_tokenizers(SENTENCES["fox"], kind="character")
    data = "+".join(f"{source}={share}" for source, share in zip(sources.values(), shares, strict=True))
    texts = task.prepare(task.load(data), tokenizers).train
    aside = task.set_aside(texts).heldout.parts.values()
    sizes = [len(part.row(tokenizers)) for part in aside]
    longest = 30  # characters of a document
    assert all(abs(size - share * sum(sizes)) <= longest for size, share in zip(sizes, shares, strict=True))


def test_held_out_documents_of_one_source_are_left_out_of_the_others(tmp_path, sources):
    lines = sources["sea"].read_text() + sources["fox"].read_text().splitlines()[0] + "\n"
    sources["sea"].write_text(lines)
    task, tokenizers = find_task("language-modeling"), train_tokenizers(SENTENCES["fox"], kind="bpe", vocab_size=300)
    splits = task.prepare(task.load(f"{sources['fox']}=1+{sources['sea']}=1"), tokenizers)
    held = splits.heldout["text"][:]
    assert SENTENCES["fox"][0] in held and SENTENCES["sea"][0] in held and splits.duplicates == 1
    rows = [part.row(tokenizers) for part in splits.train.parts.values()]
    texts = [tokenizers.source.decode(row[0 : len(row)]).split(tokenizers.source.eos_token)[:-1] for row in rows]
    assert not set(held) & {text for part in texts for text in part} and sum(map(len, texts)) + len(held) == 300


def test_mixtures_are_read_from_their_names(tmp_path, monkeypatch):
    assert shares_of("books=3+c++1/x=1") == {"books": 0.75, "c++1/x": 0.25}
    assert shares_of(full_path("a=0.00005+b=0.99995") or "") == {"a": 0.00005, "b": 0.99995}
    assert shares_of("en_pt+phrases") is shares_of("books") is shares_of("a=0.5+b") is shares_of("hf:a/b") is None
    for wrong, message in (("a=1+a=2", "names a source twice"), ("a=0+b=1", "gives a a share of 0")):
        with pytest.raises(ConfigError, match=message):
            shares_of(wrong)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    assert DataSource.of("a=1+books=3", None, None, 0).data == f"{tmp_path}/a=0.25+books=0.75"
    (tmp_path / "b=1").mkdir()
    assert shares_of("b=1") is None
    with pytest.raises(DataError, match="takes no mixture"):
        find_task("translation").load("a=1+books=3")


def test_data_is_given_several_times_on_the_command_line(tmp_path):
    command = data_options(click.command(lambda data, **others: click.echo(repr(data and str(data)))))
    call = CliRunner().invoke
    assert call(command, []).output == "None\n" and call(command, ["--data", "books"]).output == "'books'\n"
    assert call(command, ["--data", "books=0.7", "--data", "x/y=0.3"]).output == "'books=0.7+x/y=0.3'\n"
    assert "b has no share" in call(command, ["--data", "a=0.7", "--data", "b"]).output


@pytest.mark.parametrize("kind", ["text", "mixture", "stream"])
def test_a_model_is_saved_after_given_numbers_of_words(kind, sources, tmp_path):
    words = [" ".join(str(7919 * n * place) for place in range(1, 6)) for n in range(150)]  # of many tokens each
    sources["sea"].write_text("".join(json.dumps({"text": text}) + "\n" for text in words))
    data = f"{sources['fox']}=0.5+{sources['sea']}=0.5" if kind == "mixture" else str(sources["fox"])
    task = "language-modeling:block_size=16" + (",streaming=true,shuffle_buffer=9" if kind == "stream" else "")
    options = {"checkpoint_at": "200", "checkpoint_in": "words", "tokenizer": "bpe:vocab_size=400"}
    seen = run(tmp_path / "out", data, 1, 12, task=task, **options)
    place = tmp_path / "out-revisions/chck_200"
    shown, tokenizer = json.loads((place / "result.json").read_text())["checkpoint"], load_tokenizers(place).source
    texts = [tokenizer.decode(one).replace(tokenizer.eos_token, " ") for number, one in seen if number < shown["steps"]]
    # Blocks begin and end in words: half of a word each on average.
    read = sum(len(text.split()) - 1 for text in texts)
    update = len(texts) // shown["steps"] * max(len(text.split()) for text in texts)
    assert 200 - update / 4 <= read <= 200 + update
