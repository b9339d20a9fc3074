"""Cards: what `zoo.describe` tells about a variant."""

import json
from pathlib import Path

import pytest

import zoo.registry.cards
from zoo.base.errors import UnknownPresetError, UnknownQuirkError, UnknownVariantError
from zoo.registry import Card, Facts, Registry, Variant, describe, find_facts_with, register

Variants = Registry[Variant]


@pytest.fixture(autouse=True)
def _fact_finder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo.registry.cards, "_fact_finder", lambda name: Facts(num_parameters=len(name)))


@pytest.fixture(autouse=True)
def _wave(variants: Variants) -> None:
    @register(
        "wave",
        tasks=("causal-lm", "masked-lm"),
        source="a test",
        paper="Nobody 2099",
        tags=("moving",),
        defaults={"position": "none", "layer_types": ("a", "b")},
        task_defaults={"masked-lm": {"dropout": 0.5}},
        quirks={"is-flat": "Does not move."},
        limits=("Cannot stand still.",),
        deviations=("Its foam is left out.",),
        aliases=("surf",),
    )
    def wave(config: object) -> object:
        """Move up and down.

        For ever.
        """
        return config


def test_everything_that_was_registered_is_on_the_card() -> None:
    card = describe("wave")
    assert isinstance(card, Card)
    assert (card.name, card.summary, card.description) == ("wave", "Move up and down.", "For ever.")
    assert (card.source, card.paper) == ("a test", "Nobody 2099")
    assert (card.tasks, card.tags, card.aliases) == (("causal-lm", "masked-lm"), ("moving",), ("surf",))
    assert card.settings == {"position": "none", "layer_types": ("a", "b")}
    assert card.task_defaults == {"masked-lm": {"dropout": 0.5}}
    assert list(card.presets) == ["tiny", "small", "base"]
    assert card.quirks == {"is-flat": "Does not move."}
    assert card.limits == ("Cannot stand still.",)
    assert card.deviations == ("Its foam is left out.",)
    assert card.deprecated is None


def test_it_names_the_origin_of_the_variant_and_the_place_of_its_code() -> None:
    card = describe("wave")
    assert (card.module, card.distribution, card.version) == (__name__, None, None)
    assert card.file is not None
    assert card.line is not None
    assert Path(card.file) == Path(__file__)
    assert '@register(\n        "wave"' in "\n".join(Path(card.file).read_text().splitlines()[card.line - 1 :])


def test_a_builder_that_is_not_a_function_has_no_line(variants: Variants) -> None:
    class Builder:
        def __call__(self, config: object) -> object:
            return config

    register("object", tasks=("masked-lm",), source="a test")(Builder())
    assert (describe("object").file, describe("object").line) == (None, None)


def test_an_alias_has_the_card_of_its_variant() -> None:
    assert describe("surf").name == "wave"


def test_settings_in_the_name_are_on_the_card() -> None:
    card = describe("wave@tiny+is-flat:hidden_size=8")
    assert card.settings["num_hidden_layers"] == 2
    assert card.settings["hidden_size"] == 8
    assert card.num_parameters == len("wave@tiny+is-flat:hidden_size=8")


def test_a_card_is_json() -> None:
    card = describe("wave")
    assert json.loads(json.dumps(card.to_dict()))["quirks"] == {"is-flat": "Does not move."}
    assert list(card.to_dict())[:2] == ["name", "summary"]


@pytest.mark.parametrize(
    ("name", "error"),
    [("wav", UnknownVariantError), ("wave@tin", UnknownPresetError), ("wave+flat", UnknownQuirkError)],
)
def test_unknown_names_are_refused(name: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="did you mean"):
        describe(name)


def test_whoever_knows_models_tells_facts() -> None:
    @find_facts_with
    def find(name: str) -> Facts:
        return {"wave": Facts(num_parameters=42, limits=("Wets.",))}[name]

    card = describe("wave")
    assert card.num_parameters == find("wave").num_parameters == 42
    assert card.limits[-1] == "Wets."


def test_a_card_prints_as_a_page():
    text = str(describe("wave"))
    assert text.startswith("wave: ") and "\ntasks " in text and "\nquirks " in text
    assert max(map(len, text.splitlines())) <= 100
