"""What `zoo compare` says at the end: commands that work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from synthetic_comparison import made_up

from zoo.cli.compare import next_commands


def test_the_next_commands_are_for_the_best_model(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = made_up({"a": (30.0, 1.0), "b": (36.0, 1.0)}, seeds=1)
    one = replace(
        one, folder=tmp_path / "out", command=["zoo", "compare", "a", "b", "--seed", "0", "-o", str(tmp_path / "out")]
    )
    report, model, surer = (line.strip() for line in next_commands(one).splitlines())
    assert report == "open out/report.html in a browser"
    assert (
        model.startswith(f"zoo generate out/{one.runs_of('b')[0].folder}/model ") and min(one.sources, key=len) in model
    )
    assert surer == "zoo compare a b --seeds 3 -o out"
    for task, verb in [
        ("text-classification", "predict"),
        ("masked-language-modeling", "evaluate"),
        ("copy", "generate"),
    ]:
        other = replace(one, task=task, recipe={**one.recipe, "task": task})
        assert f"\n  zoo {verb} out/" in next_commands(other)
    three = replace(made_up({"a": (30.0, 1.0), "b": (36.0, 1.0)}, seeds=3), folder=Path("/elsewhere"))
    assert len(next_commands(three).splitlines()) == 2 and "/elsewhere/report.html" in next_commands(three)
