"""The verbs that list what there is: variants, settings, tasks, recipes, tokenizers."""

import dataclasses
import json
import re

import pytest
from command_line import run as command

from zoo.base import synonyms
from zoo.building.settings import setting_cards
from zoo.cli.parameters import data_options
from zoo.comparison.benchmarks import benchmarks
from zoo.comparison.benchmarks.judging import ranking, recorded
from zoo.data.tasks import TASKS as DATA_TASKS
from zoo.data.tasks import TOKENIZERS
from zoo.models import ZooConfig
from zoo.models.fields import BESIDE_FIELDS, Fields
from zoo.models.parts import PART_FIELDS
from zoo.registry import TASKS, VARIANTS, Task, list_variants
from zoo.training.arguments import ZooTrainingArguments
from zoo.training.recipe import shipped_recipes


def test_every_variant_is_listed(zoo):
    lines = zoo("list").stdout.splitlines()
    assert lines[0].split() == ["Name", "Tasks", "Summary", "Paper", "From"]
    assert [line.split()[0] for line in lines[1:]] == list_variants()


def test_piped_rows_are_whole_and_plain(zoo):
    line = next(line for line in zoo("list").stdout.splitlines() if line.startswith("vanilla "))
    variant = VARIANTS.get("vanilla")
    for text in (" ".join(variant.tasks), variant.summary, variant.paper, "built in"):
        assert text in line
    assert "\x1b" not in line and line == line.rstrip()


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_is_not_overrun(zoo, columns):
    lines = zoo("list", columns=columns, TTY_COMPATIBLE="1", TERM="dumb").stdout.splitlines()
    assert max(map(len, lines)) <= columns
    for name in list_variants():
        assert any(line.startswith(f"{name} ") for line in lines)
    assert "S..q.f" in next(line for line in lines if line.startswith("vanilla "))
    assert all(any(task in line for line in lines[-4:-2]) for task in TASKS)
    assert lines[-2:] == ["", "Next: zoo show NAME"]


def test_papers_are_there_for_whoever_asks(zoo):
    narrow, wide = (zoo("list", "vanilla", *options, columns=80).stdout for options in ((), ("--wide",)))
    assert "Vaswani" not in narrow and "Vaswani" in wide and "built in" in " ".join(wide.split())
    assert max(map(len, wide.splitlines())) <= 80


def test_patterns_tasks_and_tags(zoo):
    def names(*arguments):
        return [row["name"] for row in json.loads(zoo("list", "--json", *arguments).stdout)]

    assert names("*-norm", "!qk*") == list_variants(["*-norm", "!qk*"])
    assert names("--task", "masked-lm") == list_variants(task="masked-lm")
    assert names("--tag", "original") == list_variants(tag="original")


def test_json(zoo):
    (row,) = json.loads(zoo("list", "d2l-style", "--json").stdout)
    variant = VARIANTS.get("d2l-style")
    assert row["tasks"] == list(variant.tasks) and row["quirks"] == list(variant.quirks)
    assert (row["summary"], row["source"], row["paper"]) == (variant.summary, variant.source, variant.paper)
    assert row["distribution"] == "transformer-zoo"


def test_the_best_of_a_benchmark_come_first(zoo, tmp_path):
    best = ranking("char-lm").standings
    known = [one.variant for one in best if one.variant in VARIANTS]
    listed = json.loads(zoo("list", "--sort", "char-lm", "--json").stdout)
    names = [row["name"] for row in listed]
    assert names[: len(known)] == known and sorted(names) == list_variants()
    assert listed[0]["standing"]["mean"] == best[0].samples["heldout_loss"].mean and listed[-1]["standing"] is None
    word = next(one.verdict for one in best if one.variant == "llama-style")
    lines = zoo("list", "--sort", "char-lm", "llama-style", "vanilla").stdout.splitlines()
    assert lines[1].startswith("llama-style") and f"  {word}  " in lines[1] and lines[2].startswith("vanilla ")
    mine = tmp_path / "mine.yaml"  # without recorded rows next to it
    mine.write_bytes(benchmarks()["char-lm"].results.parents[1].joinpath("char-lm.yaml").read_bytes())
    assert "nothing is recorded of benchmark 'mine'" in zoo("list", "--sort", mine).stderr
    assert "did you mean 'char-lm'" in zoo("list", "--sort", "char_lm").stderr
    assert "leave out --wide" in zoo("list", "--sort", "char-lm", "--wide").stderr


def test_a_card_has_what_was_recorded_of_its_variant(zoo):
    standing = next(one for one in ranking("char-lm").standings if one.variant == "llama-style")
    text = zoo("show", "llama-style", columns=160).stdout
    mean = standing.samples["heldout_loss"].mean
    assert any(re.match(rf"\s*char-lm, 500 steps +Held-out loss {mean:.4f}", line) for line in text.splitlines()), text
    found = json.loads(zoo("show", "llama-style", "--json").stdout)["results"]
    assert ("char-lm", standing.verdict, 3) in [(one["benchmark"], one["verdict"], one["seeds"]) for one in found]
    judged = [verdicts for benchmark in benchmarks().values() for verdicts in recorded(benchmark)]
    somewhere = {standing.variant for verdicts in judged for standing in verdicts.standings}
    for name in sorted(set(list_variants()) - somewhere)[:1]:
        assert "Recorded, with" not in zoo("show", name).stdout


def test_what_matches_nothing_is_said_and_is_no_error(zoo):
    run = zoo("list", "llama")
    assert (run.exit_code, run.stdout) == (0, "")
    assert run.stderr == "zoo: no variant matches 'llama'; did you mean 'llama-style'?\n"


def listed(*words: str):
    run = command(*words, "--json")
    assert run.exit_code == 0, run.output
    return json.loads(run.stdout)


def test_every_field_of_the_configuration_is_described():
    cards = {card.name: card for card in setting_cards()}
    own = {field.name for field in dataclasses.fields(ZooConfig) if field.name in Fields.__annotations__}
    assert own - {"providers"} <= set(cards) and set(BESIDE_FIELDS) <= set(cards)
    assert all(card.description for card in cards.values())


def test_every_value_is_listed_with_a_line():
    for field, registry in PART_FIELDS.items():
        values = listed("settings", field)["values"]
        assert set(registry) <= set(values) and all(values.values())
    assert set(listed("settings", "norm_placement")["values"]) == {
        "post", "pre", "sandwich", "res-post", "deepnorm", "none",
    }  # fmt: skip
    assert "swiglu" in listed("settings", "feed_forward")["values"]
    assert listed("settings", "hidden_size")["values"] == {}


@pytest.mark.parametrize(("given", "meant"), [("num_layers", "num_hidden_layers"), ("d_model", "hidden_size")])
def test_other_libraries_names_lead_to_the_fields(given, meant):
    for words in (["settings", given], ["params", f"pre-norm:{given}=4"]):
        run = command(*words)
        assert run.exit_code == 2 and f"did you mean '{meant}'?" in run.stderr


def test_every_synonym_leads_to_one_field():
    others = [other for names in synonyms.FIELDS.values() for other in names]
    assert len(others) == len(set(others)) and not set(others) & {card.name for card in setting_cards()}
    assert set(synonyms.FIELDS) <= {card.name for card in setting_cards()}


def test_synonyms_of_training_lead_to_arguments_and_tasks():
    assert set(synonyms.ARGUMENTS) <= {field.name for field in dataclasses.fields(ZooTrainingArguments)}
    assert set(synonyms.TASKS) <= {*DATA_TASKS, *map(str, Task)}


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("train pre-norm --lr 1e-3", "'--learning-rate'"),
        ("train pre-norm --epochs 3", "'--num-train-epochs'"),
        ("compare pre-norm --max-steps 3", "'--training max_steps=VALUE'"),
        ("train pre-norm --d-model 64", "'--set hidden_size=VALUE'"),
        ("train pre-norm --training lr=1", "'learning_rate'"),
        ("train pre-norm --task causal-lm", "'language-modeling'"),
        ("compare pre-norm --task seq2seq-lm", "'translation'"),
        ("build pre-norm --task language-modeling", "'causal-lm'"),
    ],
)
def test_other_names_of_arguments_and_tasks_are_understood(words, meant):
    run = command(*words.split())
    assert run.exit_code == 2 and f"id you mean {meant}?" in run.stderr


def test_tasks_recipes_and_tokenizers_are_those_there_are():
    assert {task["name"] for task in listed("tasks")["training"]} == set(DATA_TASKS)
    assert set(listed("recipes")) == set(shipped_recipes())
    assert listed("recipes", "translation")["translation"]["generation"] == {"num_beams": 4, "max_length": 64}
    assert {kind["name"] for kind in listed("tokenizers")} == set(TOKENIZERS)
    run = command("recipes", "translatoin")
    assert run.exit_code == 2 and "did you mean 'translation'?" in run.stderr


def test_the_help_of_an_option_names_what_the_verb_lists():
    command = data_options(lambda: None)
    (tokenizer,) = (option for option in command.__click_params__ if option.name == "tokenizer")
    assert all(kind in tokenizer.help for kind in TOKENIZERS) and "zoo tokenizers" in tokenizer.help
