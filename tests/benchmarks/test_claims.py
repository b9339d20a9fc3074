"""Claims are about what benchmarks record, and other files are refused."""

import json
import runpy
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from benchmarks.made_rows import made_rows
from command_line import run as command

import zoo
from zoo.base.errors import ConfigError, InvalidChoiceError, UnknownNameError, UnknownVariantError
from zoo.comparison.benchmarks import benchmarks
from zoo.comparison.benchmarks.claims import calibrate, claims, read_claims
from zoo.comparison.benchmarks.claims.judging import HOLDS, MISSING, judge_claim
from zoo.comparison.benchmarks.claims.page import numbers
from zoo.comparison.benchmarks.definition import CALIBRATION
from zoo.registry import VARIANTS

KNOWN = benchmarks()
CLAIMS = read_claims(known=KNOWN)
ORIGINALS = ("vanilla", "d2l-style", "odom-style", "explicando")
SCRIPTS = Path(__file__).parents[2] / "scripts/bench"


def test_every_comparison_is_one_that_its_benchmark_records() -> None:
    contrasts = [one for claim in CLAIMS for one in claim.tests] + [one.outcome.contrast for one in calibrate().trials]
    recorded: dict[tuple[str, str], list[str]] = {}
    for contrast in contrasts:
        benchmark = KNOWN[contrast.benchmark]
        for variant, conditions, _ in contrast.sides:
            for condition in conditions or benchmark.conditions:
                key = (benchmark.name, condition)
                recorded.setdefault(key, benchmark.names(condition))
                assert variant in recorded[key], f"{variant} is not among what {key} records"


def test_what_claims_are_about_exists() -> None:
    for claim in CLAIMS:
        for name in claim.about:
            zoo.config(f"pre-norm:{name}" if "=" in name else name)


def test_there_is_a_claim_about_every_bug_that_can_be_trained_with() -> None:
    claimed = {name for claim in CLAIMS if claim.theme == "quirks" for name in claim.about if "+" in name}
    bugs = {f"{name}+{quirk}" for name in ORIGINALS for quirk in VARIANTS.get(name).quirks}
    assert bugs - claimed == {"odom-style+works-on-features"}  # it has no vocabulary
    assert len(CLAIMS) - len(claimed) >= 25


GOOD = {"benchmark": "depth", "conditions": ["6 layers, warm-up"], "variant": "pre-norm", "baseline": "post-norm"}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"expect": "lower", "benchmark": "dept"}, UnknownNameError, "unknown benchmark 'dept'.*did you mean 'depth'"),
        ({"expect": "lower", "variant": "pre-nrm"}, UnknownVariantError, "did you mean 'pre-norm'"),
        ({"expect": "lower", "conditions": ["7 layers"]}, UnknownNameError, "unknown condition '7 layers'"),
        ({"expect": "lower", "score": "bleu"}, UnknownNameError, "unknown score 'bleu'"),
        ({"expect": "lower", "score": "heldout_loss@2x"}, UnknownNameError, "unknown test '2x'"),
        ({"expect": "lower", "bassline": "x"}, UnknownNameError, "unknown entry 'bassline'.*did you mean 'baseline'"),
        ({"expect": "less"}, UnknownNameError, "unknown expectation 'less'"),
        ({"expect": "same"}, ConfigError, "a margin above 0 belongs to"),
        ({"expect": "lower", "margin": 0.1}, ConfigError, "a margin above 0 belongs to"),
        ({"expect": "lower", "baseline": "pre-norm"}, ConfigError, "'pre-norm' is compared with itself"),
        ({"expect": "lower", "conditions": "6 layers, warm-up"}, ConfigError, "conditions are lists of names"),
        ({"expect": "same", "margin": "0.1"}, ConfigError, "a margin is a number"),
        ({}, ConfigError, "missing 1 required positional argument: 'expect'"),
    ],
)
def test_an_empty_comparison_is_refused(tmp_path: Path, change, error, message: str) -> None:
    claim = {"claim": "c", "source": "s", "about": ["pre-norm"], "tests": [{**GOOD, **change}]}
    (tmp_path / "mine.yaml").write_text(json.dumps({"a": claim}))
    with pytest.raises(error, match=message):
        read_claims(tmp_path, KNOWN)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must hold names"),
        ("a: 3", "a must hold names and values; entries: claim, source"),
        ("a: {claim: c, source: s, about: [], tests: []}", "neither may be empty"),
        ("a: {claim: c, source: s, tests: []}", "neither may be empty"),
        ("a: {claim: c, source: s, about: [x]}", "missing 1 required"),
    ],
)
def test_a_file_that_holds_no_claims_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_claims(tmp_path, KNOWN)


def test_a_claim_is_about_the_variants_of_its_tests_unless_it_names_others(tmp_path: Path) -> None:
    claim = {"claim": "c", "source": "s", "tests": [{**GOOD, "expect": "lower"}]}
    for about in ({}, {"about": ["norm_placement=pre"]}):
        (tmp_path / "mine.yaml").write_text(json.dumps({"a": claim | about}))
        (found,) = read_claims(tmp_path, KNOWN)
        assert found.about == about.get("about", ["pre-norm", "post-norm"])


def test_a_name_is_listed_once(tmp_path: Path) -> None:
    claim = {"claim": "c", "source": "s", "about": ["pre-norm"], "tests": [{**GOOD, "expect": "lower"}]}
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(json.dumps({"a": claim}))
    with pytest.raises(ConfigError, match=r"'a' is in one.yaml, too"):
        read_claims(tmp_path, KNOWN)


def test_a_claim_is_judged_by_the_rows_that_it_names() -> None:
    claim = next(claim for claim in CLAIMS if claim.name == "swiglu-beats-gelu")
    char_lm = KNOWN["char-lm"]
    base = made_rows(char_lm, {"gpt2-style": [2.0, 2.1, 1.9]}, "500 steps")
    better = made_rows(char_lm, {"gpt2-style:feed_forward=swiglu": [1.9, 2.01, 1.79]}, "500 steps")
    found = judge_claim(claim, KNOWN, {"char-lm": [*base, *better]})
    assert found.verdict == HOLDS and numbers(found.outcomes[0]).endswith(": -0.1, p = 0.024, 3 seeds")
    other = made_rows(char_lm, {"gpt2-style:feed_forward=swiglu": [1.9, 2.01, 1.79]}, "2,000 steps")
    assert judge_claim(claim, KNOWN, {"char-lm": [*base, *other]}).verdict == MISSING


def test_speeds_of_a_busy_machine_do_not_count() -> None:
    claim = next(claim for claim in CLAIMS if claim.name == "rmsnorm-is-faster")
    base = made_rows(KNOWN["speed"], {"gpt2-style": [100.0] * 3}, "training")
    for load, is_missing in ((1.0, False), (5.0, True)):
        fast = made_rows(KNOWN["speed"], {"gpt2-style:norm=rmsnorm": [110.0, 111.0]}, "training")
        rows = [replace(row, threads=1, load=load) for row in fast]
        verdict = judge_claim(claim, KNOWN, {"speed": [*base, *rows]}).verdict
        assert (verdict == MISSING) is is_missing


@pytest.mark.parametrize("name", ["claims", "reasons"])
def test_a_page_is_what_its_command_writes(name: str) -> None:
    script = runpy.run_path(str(SCRIPTS / f"{name}.py"))
    assert script["PAGE"].read_text(encoding="utf-8") == script["page"]()


def test_a_sign_is_about_a_theme_of_claims(tmp_path: Path) -> None:
    text = CALIBRATION.read_text(encoding="utf-8")
    signs = tmp_path / "signs.yaml"
    signs.write_text(text.replace("theme: positions", "theme: position"), encoding="utf-8")
    with pytest.raises(InvalidChoiceError, match="did you mean 'positions'"):
        calibrate(signs)


def test_the_command_shows_them() -> None:
    def run(*arguments: str) -> str:
        result = command(*arguments)
        assert result.exit_code == 0, result.output
        return result.output

    assert f"{len(CLAIMS)} claims; " in run("claims")
    assert {one["claim"]["name"] for one in json.loads(run("claims", "norm=dyt", "--json"))} == {
        *("dynamic-tanh-is-no-worse", "dynamic-tanh-wants-scaled-embeddings")
    }
    assert "Zhang and Sennrich 2019" in run("claims", "rmsnorm-is-as-good")
    (finding,) = json.loads(run("claims", "differential-attention-retrieves-better", "--json"))
    for sample in (outcome[side] for outcome in finding["outcomes"] for side in ("variant", "baseline")):
        assert sample["mean"] == pytest.approx(fmean(sample["values"])) and sample["deviation"] > 0
        assert sample["interval"][0] <= sample["mean"] <= sample["interval"][1]
    calibration = run("claims", "--calibration")
    assert "squared-relu" in calibration and "feed forward" in calibration
    assert set(json.loads(run("claims", "--calibration", "--json"))["rates"]) == set(KNOWN["ladder"].conditions)
    assert "(zoo claims rezero)" in run("show", "rezero")
    refused = command("claims", "pre-norm", "--calibration")
    assert refused.exit_code == 2 and "leave 'pre-norm' out" in refused.output
    with pytest.raises(UnknownNameError, match="did you mean 'pre-norm'"):
        zoo.claims("pre-nrm")


def test_a_list_of_claims_shows_what_is_claimed() -> None:
    shown = " ".join(command("claims", "vanilla", columns=400).stdout.split())
    about = [finding.claim.claim for finding in zoo.claims("vanilla")]
    assert len(about) > 1 and all(text in shown for text in about)


@pytest.mark.parametrize(
    ("about", "deviation"),
    [("ngpt", "normalised in the forward"), ("norm=dyt", "same alpha"), ("hyper-connections", "Output projections")],
)
def test_a_claim_shows_how_the_variant_differs_from_its_paper(about: str, deviation: str) -> None:
    found = claims(about)
    section = runpy.run_path(str(SCRIPTS / "claims.py"))["theme_section"]
    assert found and all(any(deviation in one for one in finding.deviations) for finding in found)
    assert all(deviation in section("theme", [finding]) for finding in found)
    assert any(deviation in one for one in found[0].to_dict()["deviations"])
