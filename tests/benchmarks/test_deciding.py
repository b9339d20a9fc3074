"""A benchmark adds seeds to undecided variants alone, as rows like any others, and goes on where it was."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zoo.base.errors import ConfigError, ZooError
from zoo.comparison.benchmarks import Benchmark, Row, bench, find_benchmark, judge, read_rows
from zoo.comparison.benchmarks.rows import record
from zoo.comparison.benchmarks.running import BenchmarkRun, deciding

NAMES = ["pre-norm", "post-norm", "pre-norm:norm=rmsnorm", "sandwich-norm"]
MEANS = dict(zip(NAMES, (3.0, 3.4, 3.0, 3.01), strict=True))
NOISE = dict(zip(NAMES, (0.002, 0.002, 0.002, 0.05), strict=True))
RATES = dict(zip(NAMES, (1e-3, 3e-3, 1e-3, 3e-3), strict=True))


class MadeUp(BenchmarkRun):
    """A session that draws its rows and notes what was asked for."""

    def compared(self, condition: str, names: Sequence[str], seeds: Sequence[int], **others: Any) -> list[Row]:
        self.asked = [*getattr(self, "asked", []), (seeds[0], list(names), others.get("chosen"))]
        return [self.made(condition, name, seed) for name in names for seed in seeds]

    def made(self, condition: str, name: str, seed: int) -> Row:
        luck = np.random.default_rng([NAMES.index(name), seed]).normal(scale=NOISE[name])
        settings = {"learning_rate": RATES[name], "max_steps": 7}
        values = {"heldout_loss": MEANS[name] + luck}
        return Row(self.benchmark.version, condition, name, seed, settings=settings, values=values)


def benchmark(folder: Path, **changes: Any) -> Benchmark:
    file = folder / "mine.yaml"
    file.write_text(
        "version: 1\nsummary: A benchmark.\nminutes: 1\nscore: heldout_loss\nseeds: 3\nmargin: 0.02\nmost_seeds: 9\n"
        f"variants: {NAMES}\ncompare: {{task: copy, sweep: {{learning_rate: [1e-3, 3e-3]}}}}\n"
    )
    return replace(find_benchmark(str(file)), **changes)


def session(chosen: Benchmark, *, recorded: bool = True, tell: Any = lambda sentence: None) -> MadeUp:
    return MadeUp(chosen, Path(), None, chosen.results if recorded else None, {"jobs": 2}, False, tell)


def test_undecided_variants_get_seeds_until_they_are_decided(tmp_path: Path) -> None:
    chosen, messages = benchmark(tmp_path), list[str]()
    one = session(chosen, tell=messages.append)
    one.run("", NAMES, [0, 1, 2])
    begun = len(one.asked)
    one.decide("", NAMES)
    for number, listed in (re.match(r"(\d+) of 3 variants are undecided: (.*)", words).groups() for words in messages):
        assert len(listed.split(", ")) == int(number), "those that get another seed"
    rows = read_rows(chosen.results)
    words = {standing.variant: standing.verdict for standing in judge(chosen, rows).standings}
    assert words["post-norm"] == "worse" and words["pre-norm:norm=rmsnorm"] == "the same"
    seeds = {name: [row.seed for row in rows if row.variant == name] for name in NAMES}
    assert len(seeds["post-norm"]) < len(seeds["sandwich-norm"]) == 9 and words["sandwich-norm"] == "undecided"
    assert seeds["pre-norm"] == list(range(9))
    for seed, names, values in one.asked[begun:]:
        assert seed > 2 and {RATES[name] for name in names} == {values["learning_rate"]}
    assert sorted(rows, key=lambda row: row.key) == sorted(one.rows, key=lambda row: row.key)
    again = session(chosen)
    again.run("", NAMES, [0, 1, 2])
    again.decide("", NAMES)
    assert not hasattr(again, "asked")


def test_an_interrupted_round_goes_on(tmp_path: Path) -> None:
    chosen = benchmark(tmp_path)
    whole, rest = session(chosen, recorded=False), session(chosen)
    whole.run("", NAMES, [0, 1, 2])
    whole.decide("", NAMES)
    record(chosen.results, [row for row in whole.rows if row.seed < 3 or (row.variant, row.seed) == (NAMES[0], 3)])
    rest.run("", NAMES, [0, 1, 2])
    rest.decide("", NAMES)
    assert {row.key: row.values for row in read_rows(chosen.results)} == {row.key: row.values for row in whole.rows}
    assert (3, [NAMES[0]]) not in [(seed, names) for seed, names, _ in rest.asked]


def test_added_seeds_have_the_rate_of_a_run_that_has_one(tmp_path: Path) -> None:
    one, unsteady = session(benchmark(tmp_path), recorded=False), NAMES[3]
    one.run("", NAMES, [0, 1, 2])
    lost = {"settings": {}, "values": {}, "error": "refused"}
    one.rows = [replace(row, **lost) if (row.variant, row.seed) == (unsteady, 0) else row for row in one.rows]
    begun = len(one.asked)
    one.decide("", NAMES)
    rates = [values["learning_rate"] for _, names, values in one.asked[begun:] if unsteady in names]
    assert rates and set(rates) == {RATES[unsteady]}


def test_a_benchmark_of_equal_seeds_is_not_recorded_otherwise(tmp_path: Path) -> None:
    fixed = benchmark(tmp_path, most_seeds=None)
    with pytest.raises(ConfigError, match="most_seeds in its definition"):
        bench(fixed, decide=True, record=True)
    assert deciding(fixed).most_seeds == 16 and deciding(benchmark(tmp_path)).most_seeds == 9
    for wrong in ("margin: 0", "most_seeds: 2"):
        file = tmp_path / "wrong.yaml"
        text = (tmp_path / "mine.yaml").read_text()
        key = wrong.split(":")[0]
        file.write_text("\n".join(wrong if line.startswith(key) else line for line in text.split("\n")))
        with pytest.raises(ConfigError, match=key):
            find_benchmark(str(file))


def test_wider_conditions_take_the_swept_rate_times_a_factor(tmp_path: Path) -> None:
    conditions: dict[str, dict[str, Any]] = {"narrow": {}, "wide": {"settings": {"hidden_size": 64}}}
    chosen = benchmark(tmp_path, conditions=conditions, rates={"wide": 0.5}, most_seeds=None)
    assert "sweep" in chosen.arguments("narrow") and "sweep" not in chosen.arguments("wide")
    one = session(chosen)
    with pytest.raises(ConfigError, match="pre-norm has no learning rate yet.*run 'narrow' before"):
        one.run("wide", NAMES, [0])
    one.run("narrow", NAMES, [0, 1, 2])
    begun = len(one.asked)
    one.run("wide", NAMES, [0, 1, 2])
    assert one.asked[begun:] == [(0, [name], {"learning_rate": RATES[name] / 2}) for name in NAMES]
    for wrong in ({"wide": 1.0, "narrow": 1.0}, {"wider": 1.0}):
        text = (tmp_path / "mine.yaml").read_text() + f"conditions: {{narrow: {{}}, wide: {{}}}}\nrates: {wrong}\n"
        (tmp_path / "wrong.yaml").write_text(text)
        with pytest.raises(ZooError, match="rates"):
            find_benchmark(str(tmp_path / "wrong.yaml"))
