"""Options of a comparison, the same in Python and on the command line, and its stages from the request on."""

import ast
import inspect
from dataclasses import fields
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from transformers import SchedulerType

import zoo
import zoo.comparison
from zoo.base.errors import ZooError
from zoo.building.keywords import TrainingOptions
from zoo.cli.compare import compare as verb
from zoo.comparison.pipeline import command
from zoo.comparison.request.options import Options, options
from zoo.comparison.request.request import Request

NAMES = ["vanilla", "pre-norm:position=rotary"]
WORDS = {
    "task": ["--task", "copy:length=4"],
    "data": ["--data", "/some/data"],
    "heldout": ["--heldout", "/some/heldout.tsv"],
    "columns": ["--columns", "pt,en"],
    "recipe": ["--recipe", "translation"],
    "tokenizer": ["--tokenizer", "word"],
    "settings": ["--set", "hidden_size=32", "--set", "num_hidden_layers=1"],
    "arguments": ["--training", "weight_decay=0.5", "--training", "optim=adafactor"],
    "seeds": ["--seeds", "0,7,9"],
    "seed": ["--seed", "3"],
    "decide": ["--decide"],
    "margin": ["--margin", "0.25"],
    "score": ["--score", "blimp:limit=2"],
    "most_seeds": ["--most-seeds", "12"],
    "budget": ["--budget", "tokens=2000"],
    "match": ["--match", "params"],
    "match_by": ["--match-by", "depth"],
    "match_to": ["--match-to", "post-norm"],
    "sweep": ["--sweep", "learning_rate=0.1,0.2", "--sweep", "warmup_steps=1,2"],
    "baseline": ["--baseline", "pre-norm:position=rotary"],
    "output_dir": ["-o", "/some/where"],
}
"""Each option as it is in the command that repeats a comparison."""


def read(words):
    """What zoo compare makes of words."""
    context = verb.make_context("compare", list(words))
    given = {**context.params, "arguments": dict(context.params["training"])}
    pairs = {name: dict(given[name] or ()) for name in ("settings", "launch_with")}
    return {**{one.name: given.get(one.name) for one in fields(Options)}, **pairs}


def test_the_function_takes_every_option():
    taken = inspect.signature(zoo.compare).parameters
    for one in fields(Options):
        if one.name in ("names", "arguments"):
            continue
        assert (taken[one.name].default, taken[one.name].annotation) == (one.default, one.type), one.name
    assert set(taken) - TrainingOptions.__annotations__.keys() == {*options(), "progress", "on_run", "tell"}
    assert all(f"    {name}: {one.about}\n" in inspect.getdoc(zoo.compare) for name, one in options().items())


@pytest.mark.parametrize(
    ("words", "useful"),
    [
        (["--sweep", "seed=1,2"], "seed is to be swept"),
        (["--sweep", "max_steps=1,2", "--budget", "steps=4"], "max_steps is to be swept, but is the same"),
        (["--sweep", "decay=all,matrixes"], "unknown decay 'matrixes'"),
        (["--sweep", "learning_rate=0.1,-0.2"], "learning_rate=-0.2 is not valid"),
        (["--seeds", "0,7", "--seed", "5"], "seed=5 and the seeds '0,7'"),
        (["--budget", "steps=2.5"], "steps=a whole NUMBER"),
    ],
)
def test_options_that_contradict_each_other_are_refused(words, useful):
    with pytest.raises(ZooError) as refused:
        Request(**{**read(["pre-norm", "--task", "copy:length=4", *words]), "names": ["pre-norm"]}).check()
    assert useful in str(refused.value)


@pytest.mark.parametrize(
    ("words", "useful"),
    [
        (["--report-only", "here", "--seeds", "3"], "--report-only takes no --seeds; it takes"),
        (["--report-only", "here", "--repeat", "."], "--report-only takes no --repeat"),
        (["--repeat", ".", "--set", "hidden_size=64"], "--repeat takes no --set"),
        (["--repeat", ".", "--training", "learning_rate=1"], "--repeat takes no --training"),
    ],
)
def test_what_would_have_no_effect_is_refused(words, useful):
    assert useful in CliRunner().invoke(verb, words, standalone_mode=False).exception.format_message()


def test_the_command_that_repeats_a_comparison_has_every_option():
    assert set(WORDS) == {name for name, one in options().items() if one.flag is not None and one.repeats}
    words = [*NAMES, *(word for name in WORDS if name != "seed" for word in WORDS[name])]
    request = Request(**read(words))
    seeds = request.all_seeds
    assert command(request, NAMES, seeds, request.baseline) == ["zoo", "compare", *words]
    quoted = Request(**read(["pre-norm", "--training", "optim_args='1'", "--set", "position='2'"]))
    quoted.arguments["lr_scheduler_type"] = SchedulerType.COSINE
    again = command(quoted, ["pre-norm"], [0], "pre-norm")[2:]
    assert (Request(**read(again)).arguments, Request(**read(again)).settings) == (quoted.arguments, quoted.settings)
    alone = command(Request(**read([*NAMES, *WORDS["seed"], *WORDS["output_dir"]])), NAMES, [3], NAMES[0])
    assert alone == ["zoo", "compare", *NAMES, *WORDS["seed"], *WORDS["output_dir"]]
    assert command(Request(**read(alone[2:])), NAMES, [3], NAMES[0]) == alone


def test_every_flag_has_its_argument(tmp_path: Path):
    flags = {flag: one.name for one in verb.params if isinstance(one, click.Option) for flag in one.opts}
    renamed = {"arguments": "training"}
    for name, one in options().items():
        if one.flag is not None:
            assert flags[one.flag] == renamed.get(name, name)
            assert one.short is None or flags[one.short] == name
    only_here = set(flags.values()) - {renamed.get(name, name) for name in options()}
    assert only_here - {"traceback"} == {
        *("decay", "repeat", "report_only", "tex_columns", "timings", "quiet", "as_json")
    }  # which a verb gets when it is first used


ROOT = Path(zoo.comparison.__file__).parent
STAGES = ("files", "request", "plan", "setup", "run", "results", "display", "pipeline")
"""As docs/architecture.md lists them."""

NO_STAGES = ("benchmarks", "doctor.py", "repeating.py")
"""Modules of the room that use comparisons and are no part of one."""

SHOWN = ("results/comparison.py", "display")
"""`print(comparison)` shows its table, which is made of it: the one arrow that points forward, inside a function."""


def imported(file: Path) -> set[str]:
    """The stages that a file imports, inside functions too, but for type checkers' sake."""
    found = set()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for_types = {id(one) for node in tree.body if isinstance(node, ast.If) for one in ast.walk(node)}
    here = file.relative_to(ROOT).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and id(node) not in for_types:
            base = here[: len(here) - node.level + 1]
            found.add((*base, *(node.module or "").split("."))[0])
    return found


def test_each_stage_knows_those_before_it():
    seen = set()
    for file in ROOT.rglob("*.py"):
        name = file.relative_to(ROOT)
        if name.parts[0] in NO_STAGES:
            continue
        if name.name == "__init__.py" and len(name.parts) == 1:
            continue
        stage = STAGES.index(name.parts[0].removesuffix(".py"))
        for other in imported(file):
            seen.add((str(name), other))
            assert STAGES.index(other) <= stage or (name.as_posix(), other) == SHOWN, f"{name} imports {other}"
    assert SHOWN in seen, "no longer needed"
    listing = (ROOT.parents[1] / "docs/architecture.md").read_text(encoding="utf-8")
    assert " → ".join(f"`{stage}`" for stage in STAGES) in " ".join(listing.split())
