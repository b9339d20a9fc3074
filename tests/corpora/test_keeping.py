"""What is kept of corpora is listed with its size, and removed."""

import json

import pytest
from click.testing import CliRunner
from filelock import FileLock

from zoo.base.errors import ConfigError, DataError, UnknownNameError
from zoo.cli.main import cli
from zoo.data.corpora import get
from zoo.data.corpora.estimating import TOKENS_PER_WORD, estimate
from zoo.data.corpora.keeping import kept_corpora, kept_prepared, remove
from zoo.data.corpora.planning import find_source
from zoo.data.corpora.preparing import Preparation
from zoo.data.tasks import find_task
from zoo.data.tokenizers import train_tokenizers

TEXTS = [f"Story {n} of {n * n} words." for n in range(50)]


@pytest.fixture
def prepared(corpus, tmp_path):
    """A corpus, and what was prepared of it."""
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    corpus("stories", {"train.jsonl": lines.encode(), "validation.jsonl": b'{"text": "Another."}\n'})
    source = find_source(get("stories", progress=False))
    return Preparation(source, train_tokenizers(TEXTS, kind="bpe", vocab_size=300)).kept()


def zoo_data(*words: str) -> str:
    done = CliRunner().invoke(cli, ["data", *words], catch_exceptions=False, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_what_is_prepared_is_listed_and_removed(prepared, data_home):
    (one,) = json.loads(zoo_data("list", "--prepared", "--json"))
    size = sum(file.stat().st_size for file in prepared.rglob("*") if file.is_file())
    assert (one["name"], one["source"], one["bytes"]) == (prepared.name, str(data_home / "stories/files"), size)
    assert prepared.name in zoo_data("list", "--prepared")
    assert zoo_data("remove", "--prepared") == f"{prepared} removed ({size:,} bytes)\n"
    assert kept_prepared() == [] and list((data_home / "prepared").iterdir()) == []
    assert [kept.name for kept in kept_corpora()] == ["stories"]
    zoo_data("remove", "stories")
    assert kept_corpora() == [] and get("stories", progress=False).is_dir()


def test_unfinished_and_damaged_preparations_are_listed(prepared):
    manifest = prepared / "zoo-shards.json"
    manifest.write_text("{")
    assert [kept.source for kept in kept_prepared()] == ["damaged"]
    manifest.unlink()
    assert [kept.source for kept in kept_prepared()] == ["unfinished"]


def test_what_is_not_there_and_what_is_in_use_is_not_removed(prepared):
    with pytest.raises(UnknownNameError, match=r"unknown folder 'storys'.*; did you mean 'stories'\?"):
        remove([prepared.name, "storys"])
    with pytest.raises(ConfigError, match="name corpora or keys to remove"):
        CliRunner().invoke(cli, ["data", "remove"], standalone_mode=False, catch_exceptions=False)
    with FileLock(f"{prepared}.lock"), pytest.raises(DataError, match="is being written by another process"):
        remove([prepared.name])
    assert prepared.is_dir()


def test_a_misspelt_corpus_names_the_nearest(data_home):
    for load in (lambda: find_source("boooks"), lambda: find_task("language-modeling").load("boooks")):
        with pytest.raises(DataError, match=r"boooks does not exist.*; did you mean 'books'\?"):
            load()


def test_a_plan_estimates_the_tokens_of_a_corpus_and_measures_those_of_a_prepared_folder(prepared):
    words = ["plan", "gpt2-style", "--devices", "1", "--tokens-per-update", "1024", "--data"]
    (plan,) = json.loads(CliRunner().invoke(cli, [*words, "tinyshakespeare", "--json"], catch_exceptions=False).stdout)
    assert plan["epoch_tokens"] == round(202651 * TOKENS_PER_WORD) and plan["epoch_tokens_estimated"]
    assert plan["read_seconds"] is None and 0.1 < plan["prepare_seconds"] < 10
    shown = CliRunner().invoke(cli, [*words, "tinyshakespeare"], env={"COLUMNS": "300"}).stdout
    assert "about 269,526 tokens (estimated from its words)" in shown and "minutes of a core, once" in shown
    found = estimate(prepared)
    assert not found.estimated and found.read_seconds is not None and found.read_seconds > 0
    with pytest.raises(DataError, match=r"nor the name of a corpus .*; did you mean 'books'\?"):
        estimate("boooks")
    with pytest.raises(DataError, match="words of corpus 'tinystories' are not recorded"):
        estimate("tinystories")
