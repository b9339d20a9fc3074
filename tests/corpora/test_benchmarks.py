"""Benchmarks on corpora of many files, by name."""

import hashlib
import json

import pytest
from click.testing import CliRunner
from comparison.in_process import run_here
from corpora.recorded import SETTINGS

from zoo.base.errors import ConfigError
from zoo.cli.main import cli
from zoo.comparison.benchmarks import bench
from zoo.comparison.benchmarks.rows import name_of_data
from zoo.data.corpora import get

STORIES = {
    f"{split}/{number}.txt": f"Story {number} of {split}: {number * number} words, all of them short.\n".encode() * 9
    for split, most in (("train", 12), ("validation", 2))
    for number in range(most)
}
SHA256 = hashlib.sha256(
    "".join(f"{hashlib.sha256(text).hexdigest()}  {path}\n" for path, text in sorted(STORIES.items())).encode()
).hexdigest()
DEFINITION = {
    "version": 1,
    "summary": "Stories.",
    "minutes": 1,
    "score": "heldout_loss",
    "less_is_better": ["perplexity", "bits_per_byte"],
    "seeds": 1,
    "variants": ["gpt2-style"],
    "text": {"name": "stories", "sha256": SHA256, "source": "here"},
    "compare": {
        **{"task": "language-modeling:block_size=16", "settings": SETTINGS, "budget": "steps=2"},
        "arguments": {"tokenizer": "bpe:vocab_size=300"},
    },
}


@pytest.mark.slow
def test_a_benchmark_names_a_corpus_of_many_files(tmp_path, corpus, monkeypatch):
    run_here(monkeypatch)
    corpus("stories", STORIES)
    file = tmp_path / "stories-lm.yaml"
    file.write_text(json.dumps(DEFINITION))
    with pytest.raises(ConfigError, match="`zoo data get stories` downloads it"):
        bench(str(file))
    get("stories", progress=False)
    words = ["bench", "run", str(file), "--record", "-o", str(tmp_path / "out"), "--quiet", "--json"]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    (row,) = json.loads(done.stdout)
    assert (row["data"], row["error"]) == (SHA256, "") and row["values"]["heldout_loss"] > 0
    repeated = CliRunner().invoke(cli, ["bench", "verify", str(file), "--data", "stories"], catch_exceptions=False)
    assert repeated.exit_code == 0 and "equal to the last bit" in repeated.output


def test_a_folder_with_other_content_has_another_name_in_rows(tmp_path):
    for path, text in STORIES.items():
        (tmp_path / "files" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "files" / path).write_bytes(text)
    assert name_of_data(tmp_path / "files") == SHA256
    (tmp_path / "files/train/0.txt").write_bytes(b"Another story.")
    assert name_of_data(tmp_path / "files") != SHA256
