"""The verbs that say what there is: settings, tasks, recipes, tokenizers."""

import dataclasses
import json

import pytest
from click.testing import CliRunner

from zoo.base import synonyms
from zoo.building.settings import setting_cards
from zoo.cli.main import cli
from zoo.cli.parameters import data_options
from zoo.data.tasks import TASKS, TOKENIZERS
from zoo.models import ZooConfig
from zoo.models.fields import BESIDE_FIELDS, Fields
from zoo.models.parts import PART_FIELDS
from zoo.registry import Task
from zoo.training.arguments import ZooTrainingArguments
from zoo.training.recipe import shipped_recipes


def listed(*words: str):
    run = CliRunner().invoke(cli, [*words, "--json"])
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
        run = CliRunner().invoke(cli, words)
        assert run.exit_code == 2 and f"did you mean '{meant}'?" in run.stderr


def test_synonyms_lead_to_fields_and_stand_for_one_each():
    others = [other for names in synonyms.FIELDS.values() for other in names]
    assert len(others) == len(set(others)) and not set(others) & {card.name for card in setting_cards()}
    assert set(synonyms.FIELDS) <= {card.name for card in setting_cards()}


def test_synonyms_of_training_lead_to_arguments_and_tasks():
    assert set(synonyms.ARGUMENTS) <= {field.name for field in dataclasses.fields(ZooTrainingArguments)}
    assert set(synonyms.TASKS) <= {*TASKS, *map(str, Task)}


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
    run = CliRunner().invoke(cli, words.split())
    assert run.exit_code == 2 and f"id you mean {meant}?" in run.stderr


def test_tasks_recipes_and_tokenizers_are_those_there_are():
    assert {task["name"] for task in listed("tasks")["training"]} == set(TASKS)
    assert set(listed("recipes")) == set(shipped_recipes())
    assert listed("recipes", "translation")["translation"]["generation"] == {"num_beams": 4, "max_length": 64}
    assert {kind["name"] for kind in listed("tokenizers")} == set(TOKENIZERS)
    run = CliRunner().invoke(cli, ["recipes", "translatoin"])
    assert run.exit_code == 2 and "did you mean 'translation'?" in run.stderr


def test_the_help_of_an_option_names_what_the_verb_lists():
    command = data_options(lambda: None)
    (tokenizer,) = (option for option in command.__click_params__ if option.name == "tokenizer")
    assert all(kind in tokenizer.help for kind in TOKENIZERS) and "zoo tokenizers" in tokenizer.help
