"""A suite as the score that decides."""

import json
from pathlib import Path

import pytest
from comparison.in_process import TINY, run_here

import zoo
from zoo.base.errors import ConfigError, DataError, OutputExistsError, UnknownNameError
from zoo.comparison import summarize
from zoo.comparison.files import CHECKPOINT
from zoo.training.suites import SuiteRun, evaluate_suite

TEXT = "The cats sleep here. The cat sleeps here. The dogs see the cats. The dog sees the cat. " * 20
PAIRS = [("The cats sleep.", "The cats sleeps."), ("The dog sees.", "The dog see."), ("The cat sleeps.", "The cat")]


@pytest.fixture
def files(tmp_path: Path, monkeypatch):
    suite = tmp_path / "suite"
    suite.mkdir()
    rows = (json.dumps({"sentence_good": good, "sentence_bad": bad, "UID": "agreement"}) for good, bad in PAIRS)
    (suite / "agreement.jsonl").write_text("\n".join(rows))
    (tmp_path / "train.txt").write_text(TEXT)
    (tmp_path / "heldout.txt").write_text("The dogs see the cat. The cat sleeps here. " * 20)
    run_here(monkeypatch)
    return tmp_path, suite


def asked(folder: Path, score: str | None) -> dict:
    return {
        **{"names": ["gpt2-style", "llama-style"], "task": "language-modeling:block_size=16"},
        **{"data": folder / "train.txt", "heldout": folder / "heldout.txt"},
        **{"tokenizer": {"kind": "bpe", "vocab_size": 280}, "settings": TINY, "max_steps": 3, "warmup_steps": 1},
        **{"score": score, "output_dir": folder / "out", "progress": False},
    }


def test_a_suite_decides(files):
    folder, suite = files
    comparison = zoo.compare(**asked(folder, f"blimp:limit=2,data={suite}"))
    assert comparison.main_score == "blimp" and not comparison.failed
    summary = summarize(comparison)
    assert summary.main is not None and (summary.main.key, summary.main.better) == ("blimp", 1)
    for run in comparison.runs:
        alone = evaluate_suite(Path(run.folder) / CHECKPOINT, "blimp", data=suite, limit=2)
        assert run.report["scores"]["blimp"]["value"] == alone.overall and {"perplexity"} < set(run.report["scores"])
    assert f"blimp:limit=2,data={suite}" in comparison.command
    with pytest.raises(OutputExistsError, match="score"):
        zoo.compare(**asked(folder, f"blimp:data={suite}"))


def test_a_changed_suite_is_another_comparison(files):
    _, suite = files
    before = SuiteRun("blimp", data=str(suite)).to_dict()
    (suite / "agreement.jsonl").write_text('{"sentence_good": "Other.", "sentence_bad": "Others."}')
    assert SuiteRun("blimp", data=str(suite)).to_dict() != before


@pytest.mark.parametrize(
    ("score", "task", "error", "message"),
    [
        ("blmp", None, UnknownNameError, "did you mean 'blimp'"),
        ("blimp:limits=2", None, UnknownNameError, "did you mean 'limit'"),
        ("blimp:limit=0", None, ConfigError, "number of items"),
        ("blimp:data=/nowhere", None, DataError, "/nowhere"),
        ("blimp:method=pseudo-log-likelihood", None, ConfigError, "is scored by log-probability"),
        ("blimp", "text-classification", ConfigError, "gives no probabilities"),
    ],
)
def test_a_score_that_cannot_decide_is_refused_before_anything_is_trained(score, task, error, message, files):
    folder, _ = files
    with pytest.raises(error, match=message):
        zoo.compare(**{**asked(folder, score), **({} if task is None else {"task": task})})
    assert not (folder / "out" / "comparison.json").exists()
