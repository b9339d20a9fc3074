"""Corpora by name: listed, downloaded, checked, and found where data are named."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from filelock import FileLock

from zoo.base.errors import ConfigError, DataError, RegistrationError, UnknownCorpusError, UnknownNameError
from zoo.cli.main import cli
from zoo.data.corpora import corpus_folder, get, is_here, located
from zoo.data.corpora.estimating import TOKENS_PER_WORD, estimate
from zoo.data.corpora.getting import UnreachableDataError
from zoo.data.corpora.keeping import kept_corpora, kept_prepared, remove
from zoo.data.corpora.planning import find_source
from zoo.data.corpora.preparing import Preparation
from zoo.data.tasks import find_task
from zoo.data.tokenizers import train_tokenizers
from zoo.registry import CORPORA, Corpus, CorpusFile, list_corpora

TEXT = "".join(f"Line {number} of a text that is long enough.\n" for number in range(5000)).encode()
MEBIBYTE = 1 << 20


def test_every_corpus_names_its_origin_and_every_file_has_a_digest():
    assert {"tinyshakespeare", "eng-fra", "books", "blimp", "babylm-10m", "fineweb-edu-10BT"} <= set(list_corpora())
    for name in list_corpora():
        corpus = CORPORA.get(name)
        assert corpus.source.startswith("https://") and corpus.license and corpus.language
        for file in corpus.files:
            assert len(bytes.fromhex(file.digest)) == 32
            assert ".." not in Path(file.path).parts and not Path(file.path).is_absolute()
    assert (len(CORPORA.get("books").files), len(CORPORA.get("blimp").files)) == (754, 67)


def test_a_corpus_has_files_or_a_data_set_on_the_hub():
    with pytest.raises(RegistrationError, match="either files or"):
        Corpus("neither", "", "en", "", "")


def test_a_corpus_is_downloaded_once_and_found_by_its_name(corpus, origin, data_home):
    corpus("small", {"a.txt": TEXT, "folder/b: c.txt": b"Other"}, data="files/a.txt")
    assert located("small") == str(data_home / "small/files/a.txt")
    assert (data_home / "small/files/folder/b: c.txt").read_bytes() == b"Other"
    assert len(origin.asked) == 2 and located("small") == str(get("small")) and len(origin.asked) == 2
    splits = find_task("language-modeling").load("small")
    assert "".join([*splits.train["text"], *splits.heldout["text"]]).encode() == TEXT


def test_corpora_need_a_folder_where_the_user_has_none(monkeypatch):
    monkeypatch.delenv("ZOO_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", str)
    with pytest.raises(DataError, match="no home, where corpora are kept: name another folder in ZOO_DATA"):
        corpus_folder(CORPORA.get("books"))
    monkeypatch.setenv("ZOO_DATA", "~somebody-else/data")
    assert corpus_folder(CORPORA.get("books")).parts[-3:] == ("~somebody-else", "data", "books")


def test_a_file_here_comes_before_a_corpus_of_its_name(corpus, tmp_path, monkeypatch):
    corpus("small", {"a.txt": TEXT})
    monkeypatch.chdir(tmp_path)
    Path("small").write_text("mine")
    assert located("small") == "small" and located("./small") == "./small" and located("unheard-of") == "unheard-of"


def test_a_download_that_breaks_off_goes_on_where_it_ended(corpus, origin, monkeypatch):
    long = TEXT * (25 * MEBIBYTE // len(TEXT))
    made = corpus("small", {"a.txt": long})
    origin.breaks_after = 12 * MEBIBYTE  # the client writes 10 MiB at a time
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert get("small", progress=False).joinpath("a.txt").read_bytes() == long and is_here(made)
    assert [wanted for _, wanted in origin.asked] == [None, f"bytes={10 * MEBIBYTE}-", f"bytes={20 * MEBIBYTE}-"]


def test_a_partial_file_of_an_earlier_process_is_continued(corpus, origin):
    made = corpus("small", {"a.txt": TEXT})
    partial = corpus_folder(made) / "files/a.txt.partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(TEXT[:1234])
    get("small", progress=False)
    assert origin.asked == [("a.txt", "bytes=1234-")] and not partial.exists()


def test_a_file_with_other_content_is_refused_and_not_kept(corpus, origin):
    made = corpus("small", {"a.txt": TEXT})
    origin.files["a.txt"] = TEXT.replace(b"7", b"8")
    with pytest.raises(DataError, match=r"damaged .*expected .*, found .*has other content than recorded"):
        get("small", progress=False)
    assert not any(file.name.startswith("a.txt") for file in corpus_folder(made).rglob("*"))
    origin.files["a.txt"] = TEXT
    assert get("small", progress=False).joinpath("a.txt").read_bytes() == TEXT


def test_without_a_connection_the_error_contains_where_a_copy_may_be_put(corpus, origin, data_home, monkeypatch):
    corpus("small", {"a.txt": TEXT})
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    origin.close()
    place = data_home / "small/files/a.txt"
    with pytest.raises(UnreachableDataError, match=f"cannot be downloaded .*a copy may be put at {place}"):
        get("small", progress=False)
    place.write_bytes(TEXT)
    assert get("small", progress=False) == place.parent


def test_a_missing_file_at_the_origin_is_named(corpus, origin):
    corpus("small", {"a.txt": TEXT})
    origin.files.clear()
    with pytest.raises(UnreachableDataError, match=r"/a.txt cannot be downloaded \(.*404"):
        get("small", progress=False)


def test_a_corpus_that_changed_is_not_here(corpus):
    made = corpus("small", {"a.txt": TEXT})
    assert not is_here(made)
    file = get("small", progress=False) / "a.txt"
    assert is_here(made)
    file.write_bytes(TEXT + b"more")
    assert not is_here(made)
    with pytest.raises(DataError, match="remove it, or put the right one there"):
        get("small", progress=False)


def test_files_without_an_address_are_brought_and_built(data_home):
    with pytest.raises(UnreachableDataError, match=r"no address for eng-fra.txt .*a copy may be put at .*eng-fra.txt"):
        get("eng-fra", progress=False)
    rows = "Go.\tVa !\tCC-BY 2.0\nRun!\tCours !\tCC-BY 2.0\n"
    whole = CORPORA.get("eng-fra")
    own = replace(whole, files=(CorpusFile("eng-fra.txt", hashlib.sha256(rows.encode()).hexdigest()),))
    CORPORA.register("eng-fra", own, override=True)
    try:
        (data_home / "eng-fra/files/eng-fra.txt").write_text(rows, encoding="utf-8")
        assert get("eng-fra", progress=False).read_text(encoding="utf-8") == "Go.\tVa !\nRun!\tCours !\n"
    finally:
        CORPORA.register("eng-fra", whole, override=True)


def test_the_verb_lists_and_gets(corpus, data_home):
    corpus("small", {"a.txt": TEXT})
    listed = CliRunner().invoke(cli, ["data", "list", "small", "babylm-*", "--json"])
    assert [(one["name"], one["here"]) for one in json.loads(listed.stdout)] == [
        *(("babylm-100m", False), ("babylm-10m", False), ("small", False))
    ]
    got = CliRunner().invoke(cli, ["data", "get", "small", "--quiet"])
    assert got.exit_code == 0 and got.stdout.strip() == str(data_home / "small/files")
    assert "tinyshakespeare" in CliRunner().invoke(cli, ["data"]).stdout


def test_the_verb_refuses_unknown_and_streamed_corpora():
    unknown = CliRunner().invoke(cli, ["data", "get", "tiny-shakespeare"], standalone_mode=False).exception
    assert isinstance(unknown, UnknownCorpusError) and unknown.nearest == "tinyshakespeare"
    with pytest.raises(DataError, match="streamed from https://huggingface.co"):
        get("tinystories")


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
