"""Which runs a comparison takes, and which it does not take again."""

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from comparison.in_process import GENERATION, TASK, TINY, launch, quality, run_here

import zoo
from zoo.analysis.measuring import FlopsPerToken
from zoo.base.errors import ConfigError, OutputExistsError, UnknownVariantError
from zoo.base.files import read_mapping, write_json
from zoo.comparison import Comparison, compare, pipeline
from zoo.comparison.files import CHECKPOINT, JOB, PLAN, RESULT, RESULTS
from zoo.comparison.results.fairness import decays
from zoo.comparison.run import launchers, worker
from zoo.comparison.run.reload import Probe
from zoo.comparison.run.search import Trial, lowest
from zoo.comparison.setup import shared_inputs
from zoo.data.tasks.tables import DataWarning
from zoo.fast import FastPaths, fast_paths
from zoo.fast.switches import current
from zoo.training.after_steps import TimeBudget
from zoo.training.guard import TrainingError
from zoo.training.optimizers import decayed_parameters

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("comparison")]

small = partial(compare, task=TASK, settings=TINY, generation=GENERATION, progress=False)


@pytest.fixture(scope="module", autouse=True)
def here():
    with pytest.MonkeyPatch.context() as patch:
        run_here(patch)
        patch.setattr(pipeline, "write_files", lambda comparison: None, raising=False)
        patch.setattr(shared_inputs, "flops_per_token", lambda model, *lengths: FlopsPerToken(2.0, 6.0))
        yield


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    return small(["vanilla", "pre-norm"], budget="steps=3", output_dir=tmp_path_factory.mktemp("begun"))


@pytest.fixture
def labels():
    return []


@pytest.fixture
def again(begun, labels):
    return partial(small, output_dir=begun.folder, on_run=lambda number, total, label: labels.append(label))


def test_a_command_that_has_been_given_runs_nothing(begun, again, labels):
    before = {name: (begun.folder / name).read_bytes() for name in (RESULTS, PLAN)}
    assert again(["vanilla", "pre-norm"], budget="steps=3") == begun == Comparison.read(begun.folder) and labels == []
    assert before == {name: (begun.folder / name).read_bytes() for name in (RESULTS, PLAN)}


def test_the_sheet_counts_what_decays_in_the_models_that_were_trained(begun):
    """With the vocabulary that was found in the data, not the one that was asked for."""
    for run in begun.runs:
        model = zoo.load(Path(run.folder) / CHECKPOINT)
        sizes = {path: one.numel() for path, one in model.named_parameters()}
        counted = sum(sizes[path] for path in set(decayed_parameters(model, "matrices")) & set(sizes))
        assert sum(decays(Comparison.read(begun.folder), run.name).values()) == counted


def test_the_same_command_gives_the_same_bits(begun, tmp_path):
    fresh = small(["pre-norm"], budget="steps=3", output_dir=tmp_path)
    (before,), (now,) = begun.runs_of("pre-norm"), fresh.runs
    assert before.folder != now.folder and before.hash == now.hash and quality(before) == quality(now)
    file = Path(now.folder) / RESULT
    write_json(file, {**read_mapping(file), "circumstances": {**now.circumstances, "date": "2026-01-02"}})
    assert small(["pre-norm"], budget="steps=3", output_dir=tmp_path).date == "2026-01-02", "on which it was made"


def test_more_variants_and_seeds_extend_it(begun, again, labels):
    shown = []
    wanted = {"budget": "steps=3", "seeds": [0, 4], "baseline": "pre-norm", "tell": shown.append}
    extended = again(["pre-norm:dropout=0.5", "vanilla"], **wanted)
    finished = "2 of 6 runs were finished before and are not repeated"
    assert shown[:2] == [f"{begun.folder} is extended; it holds pre-norm as well", finished]
    assert [line for line in shown[2:] if not line.startswith("Columns: ")] == []
    new = [f"{name}, seed 4" for name in ("vanilla", "pre-norm")]
    assert sorted(labels) == sorted([*new, *(f"pre-norm:dropout=0.5, seed {seed}" for seed in (0, 4))])
    assert extended.names == ["vanilla", "pre-norm", "pre-norm:dropout=0.5"]
    assert (extended.seeds, extended.baseline) == ([0, 4], "pre-norm")
    assert [run.label for run in extended.runs_of("vanilla")] == ["vanilla, seed 0", "vanilla, seed 4"]
    assert [extended.runs_of(name)[0] for name in begun.names] == begun.runs
    assert len({run.hash for run in extended.runs}) == 6 and not extended.failed
    first, second = extended.runs_of("vanilla")
    assert first.report["heldout_loss"] != second.report["heldout_loss"]


def test_a_comparison_can_be_reproduced(begun):
    words = " ".join(begun.command)
    assert words.startswith("zoo compare vanilla pre-norm --recipe ")
    assert "--set hidden_size=16 --set num_hidden_layers=1 " in words
    assert words.endswith(f"--seed 0 --budget steps=3 -o {begun.folder}")
    kept = json.loads((begun.folder / "recipe.json").read_text())
    assert kept["task_options"]["length"] == 4 and kept["generation"] == {**kept["generation"], **GENERATION}


def test_another_comparison_is_refused(begun, again, labels):
    for changes, message in [
        ({"budget": "steps=4"}, "its budget is steps=3, not steps=4"),
        ({"budget": "steps=3", "task": f"{TASK},data_seed=1"}, "its task_options.data_seed is not given, not 1"),
        ({"budget": "steps=3", "learning_rate": 0.1}, "its arguments.learning_rate is 0.001, not 0.1"),
    ]:
        with pytest.raises(OutputExistsError, match=message):
            again(["vanilla"], **changes)
    assert labels == []


def test_wrong_wishes(tmp_path):
    for wishes, message in [
        ({"budget": "steps=3", "max_steps": 4}, "both the budget steps=3 and max_steps"),
        ({"match_by": "depth"}, "match_by=depth was given, but nothing is matched"),
        ({"match_to": "vanilla"}, "match_to=vanilla was given, but nothing is matched"),
        ({"sweep": "lr=1,2", "learning_rate": 1}, "to be swept as well"),
        ({"jobs": 0}, "at least one run"),
        ({"launcher": "locall"}, "did you mean 'local'"),
        ({"match": "parameters"}, "did you mean 'params'"),
    ]:
        with pytest.raises(ConfigError, match=message):
            small(["vanilla"], output_dir=tmp_path, **wishes)
    with pytest.raises(UnknownVariantError, match="did you mean 'vanilla'"):
        small(["vanilla"], output_dir=tmp_path, match="params", match_to="vanila")


def test_a_diverged_run_is_a_result_and_other_failures_are_tried_again(begun, tmp_path, monkeypatch):
    """Each of two variants fails once; the one with a loss that is no number would do so again."""
    work, failed = worker.work, []

    def failing(job):
        if job.name not in failed:
            failed.append(job.name)
            raise TrainingError("no number") if job.name == "vanilla" else OSError("disk full")
        return work(job)

    monkeypatch.setattr(worker, "work", failing)
    first = small(["vanilla", "pre-norm"], budget="steps=3", output_dir=tmp_path)
    assert [run.error for run in first.runs] == ["no number", "OSError: disk full"]
    second = small(["vanilla", "pre-norm"], budget="steps=3", output_dir=tmp_path)
    assert [run.error for run in second.runs] == ["no number", None]
    assert quality(second.runs[1]) == quality(begun.runs_of("pre-norm")[0])


def test_modes_of_fast_paths_reach_the_process_of_a_run(tmp_path, monkeypatch):
    """Runs happen in another thread, which has this one's modes as little as another process.

    The modes are those in which it works, answers, and is asked again after it was loaded.
    """
    seen, work, ask = [], worker.work, Probe.ask
    monkeypatch.setattr(worker, "work", lambda job: seen.append(current()) or work(job))
    monkeypatch.setattr(Probe, "ask", lambda *given: seen.append(current()) or ask(*given))
    with ThreadPoolExecutor(1) as pool, fast_paths(onednn_matmul="never", quick_dropout="always"):
        monkeypatch.setitem(launchers.LAUNCHERS, "local", lambda *args: pool.submit(launch, *args).result())
        small(["pre-norm"], budget="steps=1", output_dir=tmp_path)
    assert seen == [FastPaths(onednn_matmul="never", quick_dropout="always")] * 3


def test_a_sweep_never_sees_held_out_examples(tmp_path, monkeypatch):
    seen, train = [], worker.train

    def spying(*args, data, recipe, **kwargs):
        seen.append((recipe.arguments["learning_rate"], [set(part["question"]) for part in data]))
        return train(*args, data=data, recipe=recipe, **kwargs)

    monkeypatch.setattr(worker, "train", spying)
    shown = []
    wanted = {"match": "params", "sweep": "lr=1e-4,1e-2", "budget": "tokens=2e3", "seeds": 2, "tell": shown.append}
    swept = small(["pre-norm", "pre-norm:feed_forward=gated"], output_dir=tmp_path, **wanted)
    train_part, heldout_part = seen[-1][1]
    trials = swept.sweep["runs"]
    assert [rate for rate, _ in seen[:4]] == [1e-4, 1e-2] * 2 and len(seen) == len(trials) + 4
    for _, (trained_on, judged_by) in seen[:-4]:
        assert judged_by < train_part and not judged_by & heldout_part and trained_on == train_part - judged_by
    assert swept.sweep["values"] == {"learning_rate": [1e-4, 1e-2]} and swept.sweep["seed"] == 0
    assert swept.sweep["examples"] == len(seen[0][1][1])
    for name in swept.names:
        (best,) = [trial for trial in trials if trial["name"] == name and trial["chosen"]]
        finals = [trial for trial in trials if trial["name"] == name and trial["share"] == 0.5]
        assert best["loss"] == min(trial["loss"] for trial in finals)
        assert sum(trial["share"] for trial in trials if trial["name"] == name) <= 3
        (chosen,) = {run.settings["learning_rate"] for run in swept.runs_of(name)}
        rates = [trial["values"]["learning_rate"] for trial in finals]
        assert chosen == best["values"]["learning_rate"] or min(rates) < chosen < max(rates)
    baseline, gated = (swept.runs_of(name)[0] for name in swept.names)
    assert gated.report["num_parameters"] == pytest.approx(baseline.report["num_parameters"], rel=0.01)
    assert gated.settings["intermediate_size"] != TINY["intermediate_size"]
    assert json.loads((Path(gated.folder) / JOB).read_text())["flops"] == [2.0, 6.0]
    assert baseline.report["train_tokens"] == gated.report["train_tokens"] == pytest.approx(2e3, rel=0.3)
    assert any("parameters" in sentence for sentence in shown) and any("steps of" in sentence for sentence in shown)


def test_a_failed_trial_is_never_the_best(begun):
    failed = type(begun.runs[0])("a", "a", error="lost")
    trials = [Trial({}, 1.0, run) for run in (failed, *begun.runs)]
    assert lowest(trials).run in begun.runs and lowest(trials[:1]) is None


def test_examples_that_are_left_out_are_reported_once(tmp_path, recwarn):
    rows = ["en\tpt\n", *(f"A word {i}.\tUma palavra {i}.\n" for i in range(40))]
    (tmp_path / "train.tsv").write_text("".join(rows), encoding="utf-8")
    (tmp_path / "heldout.tsv").write_text("".join(rows[:2]), encoding="utf-8")
    shown: list[str] = []
    data = {"task": "translation", "data": tmp_path / "train.tsv", "heldout": tmp_path / "heldout.tsv"}
    more = {"tokenizer": "word", "budget": "steps=1", "output_dir": tmp_path / "runs", "tell": shown.append}
    small(["pre-norm", "vanilla"], **data, **more)
    warning_text = (
        "1 example is among those to train on and among the held-out ones; it is not trained on, which leaves 39"
    )
    assert (
        shown.count(warning_text) == 1
        and [warning for warning in recwarn if issubclass(warning.category, DataWarning)] == []
    )


def test_seconds_end_a_run_with_its_schedule(tmp_path):
    timed = small(["pre-norm"], budget="seconds=2", output_dir=tmp_path, logging_steps=1, warmup_steps=0.1)
    (run,) = timed.runs
    assert 2 <= run.report["train_seconds"] < 20 and run.report["steps"] > 3  # a step may be slow while other tests run
    rates = [point["learning_rate"] for point in run.curve if "loss" in point]
    assert max(rates) > 5e-4 and rates[-1] < max(rates) / 4
    half_spent = TimeBudget(**TimeBudget(9.0, used=4.5).state()["args"])  # as a checkpoint keeps it
    assert 4.5 <= half_spent.elapsed() < 9 and half_spent.seconds == 9.0
