"""Sizes that are not given follow the width and the heads, in the proportions of a variant's definition."""

from typing import Any

import pytest

import zoo
from zoo.base.errors import ZooWarning
from zoo.building.proportions import OF_WIDTH
from zoo.registry import SIZES, VARIANTS
from zoo.training.recipe import load_recipe, shipped_recipes

WIDTHS = (16, 48, 80, 100, 192, 320, 1024)


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("gpt2-style", {"hidden_size": 80}, {"intermediate_size": 320, "num_attention_heads": 1, "head_dim": 80}),
        ("gpt2-style", {"hidden_size": 80, "num_attention_heads": 4}, {"intermediate_size": 320, "head_dim": 20}),
        ("gpt2-style", {"hidden_size": 80, "head_dim": 20}, {"num_attention_heads": 4}),
        ("gpt2-style", {"hidden_size": 80, "intermediate_size": 7}, {"intermediate_size": 7}),
        ("gpt2-style", {"hidden_size": 1024}, {"intermediate_size": 4096, "num_attention_heads": 16}),
        ("modernbert-style", {"hidden_size": 1024}, {"intermediate_size": 1536, "num_attention_heads": 16}),
        ("llama-style", {"hidden_size": 1024}, {"num_attention_heads": 16, "num_key_value_heads": 4}),
        ("llama-style", {"num_attention_heads": 4}, {"num_key_value_heads": 1, "intermediate_size": 2048}),
        ("llama-style", {"hidden_size": 1024, "num_key_value_heads": 8}, {"num_key_value_heads": 8}),
        ("falcon-style", {"hidden_size": 1024}, {"num_attention_heads": 16, "num_key_value_heads": 1}),
        ("llama-style@small", {"hidden_size": 512}, {"num_attention_heads": 8, "num_key_value_heads": 4}),
        ("diff-transformer", {"hidden_size": 80}, {"num_attention_heads": 2}),
        ("attention-is-all-you-need@big", {"hidden_size": 128}, {"intermediate_size": 512, "num_attention_heads": 2}),
        (
            "deepseek-v3-style",
            {"hidden_size": 1024, "num_attention_heads": 8},
            {"q_lora_rank": 384, "kv_lora_rank": 256, "head_dim": 64, "v_head_dim": 128, "moe_intermediate_size": 1024},
        ),
        ("pre-norm:hidden_size=128", {}, {"intermediate_size": 512, "decoder_intermediate_size": 512}),
        ("gpt2-style", {"hidden_size": 96, "num_attention_heads": 4, "sizes": "fixed"}, {"intermediate_size": 3072}),
    ],
)
def test_a_size_that_is_not_given_follows(name: str, given: dict[str, Any], expected: dict[str, int]) -> None:
    config = zoo.config(name, "seq2seq-lm" if "decoder_intermediate_size" in expected else None, **given)
    assert {size: getattr(config, size) for size in expected} == expected


@pytest.mark.filterwarnings("ignore::zoo.base.errors.ZooWarning")
@pytest.mark.parametrize("name", list(VARIANTS))
def test_every_variant_has_its_proportions_at_every_width(name: str) -> None:
    own = zoo.config(name)
    for width in WIDTHS:
        config = zoo.config(name, hidden_size=width)
        for size in OF_WIDTH:
            if getattr(own, size, None):
                assert getattr(config, size) == max(1, round(getattr(own, size) * width / own.hidden_size))
    assert zoo.config(name, hidden_size=own.hidden_size).to_dict() == own.to_dict()


@pytest.mark.parametrize("preset", SIZES)
@pytest.mark.parametrize("name", ["llama-style", "deepseek-v3-style", "albert-style", "kimi-linear-style"])
def test_presets_are_the_definition(name: str, preset: str) -> None:
    settings = VARIANTS.get(name).settings(preset=preset)
    config = zoo.config(f"{name}@{preset}")
    assert {key: getattr(config, key) for key in settings if key.endswith(("_size", "_rank", "_heads"))} == {
        key: value for key, value in settings.items() if key.endswith(("_size", "_rank", "_heads"))
    }


def test_what_is_in_no_proportion_stays_and_is_named() -> None:
    with pytest.warns(ZooWarning, match=r"hidden_size=96 is given, and 'albert-style' keeps embedding_size=128"):
        assert zoo.config("albert-style", hidden_size=96).embedding_size == 128


@pytest.mark.parametrize("recipe", shipped_recipes())
def test_recipes_leave_what_they_do_not_give(recipe: str) -> None:
    """Rows of benchmarks and weights that ship were recorded so."""
    settings = load_recipe(recipe).model_settings("deepseek-moe")
    config = zoo.config("deepseek-moe", "causal-lm", **settings)
    assert (config.num_key_value_heads, config.moe_intermediate_size) == (2, 512)
