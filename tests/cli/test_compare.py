"""What `zoo compare` says at the end: commands that work."""

from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_comparison import made_up

from zoo.cli.compare import next_commands, report
from zoo.comparison.run.timings import PHASES


def test_the_next_commands_are_for_the_best_model(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = made_up({"a": (30.0, 1.0), "b": (36.0, 1.0)}, seeds=1)
    words = ["zoo", "compare", "a", "b", "--seed", "0", "-o", str(tmp_path / "out")]
    one = replace(one, folder=tmp_path / "out", command=words)
    report, model, surer = (line.strip() for line in next_commands(one).splitlines())
    assert report == "open out/report.html in a browser"
    assert model.startswith(f"zoo generate out/{one.runs_of('b')[0].folder}/model ")
    assert min(one.sources, key=len) in model
    assert surer == "zoo compare a b --seeds 3 -o out"
    verbs = {"text-classification": "predict", "masked-language-modeling": "evaluate", "copy": "generate"}
    for task, verb in verbs.items():
        other = replace(one, task=task, recipe={**one.recipe, "task": task})
        assert f"\n  zoo {verb} out/" in next_commands(other)
    three = replace(made_up({"a": (30.0, 1.0), "b": (36.0, 1.0)}, seeds=3), folder=Path("/elsewhere"))
    assert len(next_commands(three).splitlines()) == 2 and "/elsewhere/report.html" in next_commands(three)


def test_timings_are_means_over_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    one = made_up({"a": (30.0, 1.0), "b": (36.0, 1.0)}, seeds=2)
    assert report(one, timings=True, as_json=False) == 0
    assert "no run of this comparison was timed" in capsys.readouterr().out
    seconds = [dict.fromkeys(PHASES, 1.0) | {"train": train} for train in (3.0, 9.0)]
    timed = [replace(run, timings=seconds[run.seed % 2]) for run in one.runs if run.name == "a"]
    assert report(replace(one, runs=timed), timings=True, as_json=False) == 0
    *_, shown = (line for line in capsys.readouterr().out.splitlines() if line.startswith("a "))
    assert shown.split() == ["a", *("6.00" if phase == "train" else "1.00" for phase in PHASES), "50"]
