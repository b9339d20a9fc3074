"""A sweep widens at edges, costs at most three runs, and chooses by trials near the best."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from comparison.in_process import TASK, TINY
from hypothesis import given
from hypothesis import strategies as st
from synthetic_comparison import made_up

from zoo.base.errors import ConfigError
from zoo.base.files import write_json
from zoo.comparison import Run
from zoo.comparison.files import RESULT
from zoo.comparison.pipeline import Phases, set_up
from zoo.comparison.plan import ComparisonPlan
from zoo.comparison.request.request import Request
from zoo.comparison.request.seeds import at_the_edge, beyond
from zoo.comparison.results.fairness import as_built, fairness_sheet
from zoo.comparison.run.launchers import LAUNCHERS
from zoo.comparison.run.search import Choice, chosen_values, lowest_point, recorded, search
from zoo.comparison.setup.job import Job
from zoo.comparison.setup.jobs import JobMaker
from zoo.comparison.setup.shared_inputs import share_of_decay

Loss = Callable[[Mapping[str, Any]], float]


def searched(tried: dict[str, list[Any]], loss: Loss) -> Choice:
    """Search where the losses are known."""
    going = search(tried)
    values, _ = next(going)
    while True:
        reports = [{"heldout_loss": loss(one), "heldout_examples": 5} for one in values]
        try:
            values, _ = going.send([Run("v", "", report=report) for report in reports])
        except StopIteration as end:
            return end.value


def valley(lowest: float) -> Loss:
    return lambda values: (math.log10(values["learning_rate"]) - math.log10(lowest)) ** 2


@pytest.mark.parametrize("lowest", [2e-4, 3e-4, 1.2e-3, 3e-3, 6e-3, 2e-2, 6e-2])
def test_the_bottom_of_a_valley_is_found_beyond_what_was_given(lowest: float) -> None:
    choice = searched({"learning_rate": [1e-3, 3e-3, 1e-2]}, valley(lowest))
    assert choice.values is not None and choice.values["learning_rate"] == pytest.approx(lowest, rel=0.05)
    assert "edge" not in " ".join(chosen_values(choice)) and sum(one.share for one in choice.trials) <= 3


def test_widening_ends_and_an_edge_is_marked() -> None:
    choice = searched({"learning_rate": [1e-3, 2e-3]}, lambda values: -values["learning_rate"])
    assert choice.tried("learning_rate")[:4] == [1e-3, 2e-3, 4e-3, 8e-3] and choice.values == {"learning_rate": 8e-3}
    assert "at the edge of what was tried" in chosen_values(choice)[0]
    sweep = recorded({"b": choice}, {"learning_rate": [1e-3, 2e-3]}, 0)
    made = made_up({"a": (30.0, 1.0), "b": (36.0, 1.0)}, seeds=3)
    runs = [replace(run, settings=dict(choice.values or {})) if run.name == "b" else run for run in made.runs]
    sheet = fairness_sheet(replace(made, runs=runs, sweep=sweep))
    assert "its best learning_rate, 0.008, is at the edge of what was tried" in sheet.qualifications["b"]
    assert "learning_rate 0.004: -0.0040 (0.5 of a run)" in sheet.variants["b"]["Tried by the sweep"]


def test_lists_and_dictionaries_can_be_swept() -> None:
    tried = {"lr_scheduler_kwargs": [{"num_decay_steps": 2}, {"num_decay_steps": 3}]}
    choice = searched(tried, lambda values: values["lr_scheduler_kwargs"]["num_decay_steps"])
    made = made_up({"a": (30.0, 1.0), "b": (36.0, 1.0)}, seeds=3)
    runs = [replace(run, settings=dict(choice.values or {})) if run.name == "b" else run for run in made.runs]
    sheet = fairness_sheet(replace(made, runs=runs, sweep=recorded({"b": choice}, tried, 0)))
    assert sheet.variants["b"]["Chosen by the sweep"] == "lr_scheduler_kwargs {'num_decay_steps': 2}"
    assert "lr_scheduler_kwargs {'num_decay_steps': 3}: 3.0000 (0.5" in sheet.variants["b"]["Tried by the sweep"]


@given(
    st.lists(st.floats(1e-4, 1e-1), min_size=1, max_size=6, unique=True),
    st.lists(st.sampled_from([0.01, 0.1, 0.0]), min_size=0, max_size=3, unique=True),
    st.randoms(use_true_random=False),
)
def test_no_sweep_costs_more_than_three_runs(rates: list[float], decays: list[float], luck: Any) -> None:
    tried = {"learning_rate": rates, **({"weight_decay": decays} if decays else {})}
    choice = searched(tried, lambda values: luck.choice([luck.random(), math.inf, math.nan]))
    assert sum(one.share for one in choice.trials) <= 3 + 1e-9
    assert (choice.values is None) == all(one.loss == math.inf for one in choice.trials)


def test_all_trials_failing_is_no_choice() -> None:
    choice = searched({"learning_rate": [1e-3, 3e-3]}, lambda values: math.nan)
    assert choice.values is None and choice.best is None and chosen_values(choice) == []


def test_words_and_truth_values_have_no_edge() -> None:
    choice = searched({"optim": ["adamw_torch", "muon"]}, lambda values: len(values["optim"]))
    assert choice.values == {"optim": "muon"} and set(choice.tried("optim")) == {"adamw_torch", "muon"}
    assert not at_the_edge(True, [True, False]) and beyond(0.0, [0.0, 0.1]) is None and beyond(1, [1, 2]) is None
    some = searched({"max_grad_norm": [None, 0.5, 1.0]}, lambda values: values["max_grad_norm"] or 9.0)
    assert some.values == {"max_grad_norm": 0.125}, "None is no number, beyond which others lie"
    assert (beyond(10, [1, 10]), beyond(0.1, [0.1, 0.2])) == (100, 0.05)


def test_the_lowest_point_is_that_of_the_parabola() -> None:
    rates = [1e-3, 2e-3, 8e-3]
    losses = [3 + 0.7 * (math.log(rate) - math.log(2.9e-3)) ** 2 for rate in rates]
    assert lowest_point(rates, losses) == pytest.approx(2.9e-3, rel=0.02)
    assert lowest_point(rates, [1.0, 1.0, 1.0]) == 2e-3


def plan_of(folder: Path, **options: Any) -> tuple[ComparisonPlan, JobMaker]:
    """The plan of a comparison that nothing is trained for, and what makes its runs."""
    asked = Request(names=["pre-norm"], task=TASK, settings=TINY, output_dir=folder, **options)
    asked.check()
    request, plan, inputs = set_up(asked, progress=False, tell=lambda sentence: None)
    return plan, JobMaker(inputs, request, "pre-norm", progress=False, tell=lambda sentence: None)


def jobs_of(folder: Path, **options: Any) -> JobMaker:
    return plan_of(folder, **options)[1]


@pytest.mark.parametrize("factor", [-1.0, math.nan])
def test_no_sweep_leaves_the_valid_values_of_a_setting(tmp_path: Path, monkeypatch, factor: float) -> None:
    plan, maker = plan_of(tmp_path, sweep="dropout=0.5,0.9")

    def launch(jobs: Sequence[Job], *others: Any) -> None:
        for job in jobs:
            report = {"heldout_loss": factor * job.settings["dropout"], "heldout_examples": 8}
            write_json(Path(job.folder) / RESULT, {"hash": job.hash, "report": report})

    monkeypatch.setitem(LAUNCHERS, "local", launch)
    phases = Phases(plan, maker, None)
    choice = phases.choices()["pre-norm"]
    assert choice.values == (None if math.isnan(factor) else {"dropout": 0.9})
    assert set(choice.tried("dropout")) == {0.5, 0.9}
    if choice.values is None:
        (run,) = phases.runs(["pre-norm"], [0], {"pre-norm": choice})
        assert run.error == "none of the sweep's trials succeeded: the loss is no number"


def test_a_budget_of_tokens_is_spent_with_every_batch_size(tmp_path: Path) -> None:
    maker = jobs_of(tmp_path, budget="tokens=4e4", sweep="per_device_train_batch_size=4,16")
    for size, updates in ((4, 20), (16, 5)):  # of an epoch of 80 examples
        swept = {"per_device_train_batch_size": size}
        steps = [maker.job("pre-norm", 0, swept, share=share).recipe["arguments"]["max_steps"] for share in (1, 0.5)]
        tokens = sum(len(row[part]) for row in maker.inputs.encoded.train for part in ("input_ids", "labels"))
        assert steps[0] == round(4e4 / (tokens / updates)) and steps[1] == round(steps[0] / 2)


def test_a_budget_of_operations_is_that_of_the_swept_size(tmp_path: Path) -> None:
    maker = jobs_of(tmp_path, budget="flops=1e10", sweep="hidden_size=16,64")
    steps = [maker.job("pre-norm", 0, {"hidden_size": size}).settings["max_steps"] for size in (16, 64)]
    flops = [maker.flops(f"pre-norm:hidden_size={size}").training for size in (16, 64)]
    assert steps[0] / steps[1] == pytest.approx(flops[1] / flops[0], rel=0.01)
    matched = jobs_of(tmp_path / "matched", match="params", sweep="hidden_size=16,64")
    assert matched.job("pre-norm", 0, {"hidden_size": 16}).variant == "pre-norm:hidden_size=16"
    with pytest.raises(ConfigError, match="the sweep of hidden_size changes what match=params makes equal"):
        matched.job("pre-norm", 0, {"hidden_size": 64})


def test_a_trial_has_its_share_of_the_warm_up(tmp_path: Path) -> None:
    maker = jobs_of(tmp_path, budget="steps=40", arguments={"warmup_steps": 10})
    for swept, share in (({}, 0.25), ({"warmup_steps": 20}, 0.5), ({"warmup_steps": 0.1}, 0.1)):
        whole, trial = (maker.job("pre-norm", 0, swept, share=part).recipe["arguments"] for part in (1, 0.2))
        assert whole["warmup_steps"] == swept.get("warmup_steps", 10)
        assert (trial["max_steps"], trial["warmup_steps"]) == (8, share)


def test_a_decay_keeps_its_share_of_a_trial(tmp_path: Path) -> None:
    for decay, share in ((10, 0.25), (0.1, 0.1)):
        schedule = {"lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": {"num_decay_steps": decay}}
        maker = jobs_of(tmp_path, budget="steps=40", arguments=schedule)
        whole, trial = (maker.job("pre-norm", 0, {}, share=part).recipe["arguments"] for part in (1.0, 0.2))
        assert whole["lr_scheduler_kwargs"] == {"num_decay_steps": decay}
        assert (trial["max_steps"], trial["lr_scheduler_kwargs"]) == (8, {"num_decay_steps": share})
    assert share_of_decay({"num_decay_steps": 500}, 1000) == {"lr_scheduler_kwargs": {"num_decay_steps": 0.5}}
    request = Request(names=["pre-norm"], task=TASK, budget="seconds=2", arguments={**schedule})
    request.check()
    schedule["lr_scheduler_kwargs"]["num_decay_steps"] = 10
    values = [{"num_decay_steps": 0.1}, {"num_decay_steps": 10}]
    arguments = {"lr_scheduler_type": "warmup_stable_decay"}
    for one in (request, replace(request, arguments=arguments, sweep={"lr_scheduler_kwargs": values})):
        with pytest.raises(ConfigError, match="num_decay_steps=10 and the budget seconds=2 were given.*as a share"):
            one.check()


def test_the_folder_may_be_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USERPROFILE" if os.name == "nt" else "HOME", str(tmp_path))
    assert Request(names=["pre-norm"], task=TASK, output_dir="~/compared").folder == tmp_path / "compared"


@pytest.mark.parametrize("given", [{"arguments": {"warmup_steps": 10}}, {"sweep": "warmup_steps=0.1,10"}])
def test_a_warm_up_of_updates_is_none_by_the_clock(given: Any) -> None:
    request = Request(names=["pre-norm"], task=TASK, budget="seconds=2", **given)
    with pytest.raises(ConfigError, match="warmup_steps=10 and the budget seconds=2 were given.*as a share"):
        request.check()
    replace(request, budget="steps=40").check()


def test_no_weights_are_averaged_by_the_clock() -> None:
    request = Request(names=["pre-norm"], task=TASK, budget="seconds=2", arguments={"average": "ema"})
    with pytest.raises(ConfigError, match="average=ema and the budget seconds=2 were given.*a budget of steps"):
        request.check()
    replace(request, budget="steps=40").check()


def test_fields_of_the_configuration_can_be_swept() -> None:
    names = ["pre-norm", "post-norm"]
    request = Request(names=names, task="copy", sweep="initializer_range=0.02,0.08")
    request.check()
    with pytest.raises(ConfigError, match="initializer_range"):
        replace(request, names=["pre-norm:initializer_range=0.1"]).check()
    with pytest.raises(Exception, match="initializer_range"):
        replace(request, sweep="initializer_range=-1,0.08").check()
    made = made_up({"pre-norm": (30.0, 1.0)}, seeds=1)
    sweep = {"values": {"initializer_range": [0.02, 0.08]}, "seed": 0, "runs": []}
    runs = [replace(run, settings={"initializer_range": 0.08}) for run in made.runs]
    assert "initializer_range=0.08" in as_built(replace(made, runs=runs, sweep=sweep), "pre-norm")
