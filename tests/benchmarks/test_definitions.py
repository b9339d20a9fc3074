"""Every benchmark that ships can be run: its names, settings, conditions and tests exist and suit each other."""

from dataclasses import fields
from pathlib import Path

import pytest

from zoo.base.errors import ConfigError, UnknownNameError, UnsupportedTaskError
from zoo.comparison.benchmarks import benchmarks, find_benchmark
from zoo.comparison.benchmarks.definition import expand, read
from zoo.comparison.benchmarks.running import arguments_of
from zoo.comparison.request.request import Request
from zoo.data.tasks import find_task
from zoo.registry import VARIANTS
from zoo.training.request import TrainingRequest
from zoo.training.suites import SUITES

ALL = benchmarks()
START = "{version: 1, summary: s, minutes: 1, score: a, seeds: 1, variants: [a], compare: {task: copy},"


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shortened", [False, True], ids=["whole", "quick"])
def test_it_can_be_asked_for(name: str, shortened: bool) -> None:
    benchmark = ALL[name].shortened() if shortened else ALL[name]
    for condition in benchmark.conditions:
        arguments = benchmark.arguments(condition)
        options = {key: arguments.pop(key) for key in ("arguments", "score") if key in arguments}
        names = benchmark.names(condition)
        assert len(names) == len(set(names)) >= (1 if benchmark.anchors else 2), "there is something to compare with"
        request = Request(names, arguments=options.get("arguments", {}), **arguments)
        request.check()
        run = {"model": names[0], "recipe": request.chosen, "resume": True, "seed": 0, "arguments": {}}
        given = {**dict.fromkeys(field.name for field in fields(TrainingRequest)), **run}
        assert TrainingRequest(**given).saves, "an interrupted run goes on"
        assert options.get("score") in (None, *SUITES.names()), "its pairs are not here"


@pytest.mark.parametrize("name", ALL)
def test_its_baseline_is_the_first_name(name: str) -> None:
    benchmark = ALL[name]
    for condition, options in benchmark.conditions.items():
        assert benchmark.names(condition)[0] == options.get("variants", benchmark.variants)[0]


def test_published_numbers_are_of_variants_that_it_compares() -> None:
    for one in ALL.values():
        for anchor in one.anchors:
            conditions = [anchor.condition] if anchor.condition in one.conditions else one.conditions
            assert all(anchor.variant in one.names(condition) for condition in conditions)


def test_the_score_that_decides_is_one_of_the_task_or_a_loss() -> None:
    for one in ALL.values():
        scores = {one.task(condition).main_score for condition in one.conditions}
        assert one.score in {*scores, "heldout_loss"} or one.tests or one.timed


def test_all_together_take_about_fourteen_hours_and_books_more() -> None:
    minutes = {name: one.minutes for name, one in ALL.items()}
    assert minutes.pop("ladder") < 40 * 60 and minutes.pop("english") < 4 * 60
    assert 8 * 60 < sum(minutes.values()) < 14 * 60


def test_patterns_match_existing_names() -> None:
    task = find_task("translation")
    assert expand(["vanilla+*"], task) == [f"vanilla+{quirk}" for quirk in VARIANTS.get("vanilla").quirks]
    assert set(expand(["*-norm"], task)) == {"post-norm", "pre-norm", "res-post-norm", "sandwich-norm"}
    assert "pre-norm:position=rotary" in expand(["pre-norm:position=*"], task)
    assert "pre-norm:position=rotary,norm=rmsnorm" in expand(["pre-norm:position=rotary,norm=*"], task)
    assert expand(["vanilla", "*", "vanilla"], task)[0] == "vanilla"
    assert set(expand(["*-norm", "!re*-norm", "!pre-norm"], task)) == {"post-norm", "sandwich-norm"}
    with pytest.raises(UnsupportedTaskError):
        task.check_variant(*expand(["gpt2-style"], task))


def test_a_condition_changes_single_entries(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "{version: 1, summary: s, minutes: 1, score: bleu, seeds: 1, variants: [pre-norm, post-norm],"
        " compare: {task: translation, settings: {hidden_size: 32, dropout: 0.2}, sweep: {lr: [1, 2]}},"
        " conditions: {wide: {settings: {hidden_size: 64}, sweep: null}, plain: {settings: null}}}"
    )
    arguments = find_benchmark(str(file)).arguments("wide")
    assert arguments == {"task": "translation", "settings": {"hidden_size": 64, "dropout": 0.2}}
    assert arguments_of(find_benchmark(str(file)), "plain", {"dropout": 0.1})["settings"] == {"dropout": 0.1}
    with pytest.raises(UnknownNameError, match="did you mean 'wide'"):
        find_benchmark(str(file)).arguments("wid")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1", "is not valid YAML"),
        ("3", "is no benchmark"),
        ("{version: 1}", "missing"),
        ("{vesion: 1}", "did you mean 'version'"),
        ("{version: 1, summary: s, minutes: 1, score: a, seeds: 1, variants: [a], compare: {}}", "names no task"),
        (START + " quick: {conditions: [x]}}", "unknown condition 'x'"),
        (
            START + " conditions: {wide: {}, narrow: {}}, across: {reading: average},"
            " anchors: [{variant: a, value: 1, tolerance: 1, source: s, condition: wid}]}",
            "unknown condition 'wid'.*did you mean 'wide'",
        ),
        (
            START + " conditions: {wide: {}, narrow: {}}, anchors: [{variant: a, value: 1, tolerance: 1, source: s}]}",
            "unknown condition ''",
        ),
        (START + " anchors: [{variant: a, value: 7, source: s}]}", "tolerance=None and averaged_over=1 of 7; valid:"),
        (
            START + " anchors: [{variant: a, value: 7, source: s, tolerance: 1, averaged_over: 3}]}",
            "tolerance=1 and averaged_over=3 of 7; valid: either",
        ),
        (
            START + " anchors: [{variant: a, value: 7, source: s, tolerance: 1, averaged_over: 0}]}",
            "tolerance=1 and averaged_over=0 of 7; valid: either",
        ),
        (
            "{version: 1, summary: s, minutes: 1, score: relative_speed, seeds: 1, variants: [a],"
            " compare: {task: copy, budget: steps=1}, timed: {'': training}}",
            "a budget of seconds",
        ),
        (
            "{version: 1, summary: s, minutes: 1, score: relative_speed, seeds: 1, variants: [a],"
            " compare: {task: copy, budget: seconds=1}, timed: {'': trainin}}",
            "unknown entry 'trainin'.*did you mean 'training'",
        ),
    ],
)
def test_a_file_that_is_no_benchmark_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        read(file)


def test_an_unknown_benchmark_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'char-lm'"):
        find_benchmark("charlm")
