"""muP: settings, initial weights and learning rates by width, and the coordinate check that tells it from the usual."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

import zoo
from zoo.analysis.measuring.coordinates import check_coordinates, growth
from zoo.base.errors import ZooError
from zoo.models import learning_rate_factors
from zoo.training.optimizers import scaled_groups

WIDE: dict[str, Any] = {"hidden_size": 512, "num_attention_heads": 32, "intermediate_size": 1024, "vocab_size": 64}


def test_settings_follow_table_8() -> None:
    config = zoo.config("llama-style", parametrization="mup", **WIDE, num_key_value_heads=32, mup_base_width=128)
    assert (config.initializer, config.logit_scale) == ("mup", 0.25)
    assert config.attention_scale == pytest.approx(16 / 64**0.5)  # 1 / head_dim, as usual at 64
    saved = zoo.models.ZooConfig.from_dict(config.to_diff_dict())
    assert (saved.logit_scale, saved.mup_base_width) == (0.25, 128)  # not scaled again
    assert zoo.config("llama-style", parametrization="standard") == zoo.config("llama-style")


USUAL = ["gpt2-style", "vanilla", "mixtral-style", "bert-style", "gpt2-style:residual=manifold-hyper-connections"]


@pytest.mark.parametrize(
    ("name", "task"), [*((name, None) for name in USUAL), ("bert-style", "sequence-classification")]
)
def test_weights_and_learning_rates_follow_table_8(name: str, task: str | None) -> None:
    model = zoo.build(name, task, parametrization="mup", seed=0, mup_base_width=128, num_hidden_layers=1, **WIDE)
    factors = learning_rate_factors(model)
    assert factors.keys() == dict(model.named_parameters()).keys()
    std = model.config.initializer_range
    scaled = model.config.scale_embedding
    for path, parameter in model.named_parameters():
        if parameter.ndim < 2 or path.endswith("_bias"):
            assert factors[path] == 1.0, path
        elif "layers." in path:
            assert parameter.std().item() == pytest.approx(std / 2, rel=0.1), path
            assert factors[path] == 0.25, path
        elif "embed_tokens" in path:
            assert parameter.std().item() == pytest.approx(std / 2 if scaled else std, rel=0.1), path
            assert factors[path] == (0.5 if scaled else 1.0), path
        elif path == "lm_head.weight":
            assert parameter.std().item() == pytest.approx(std, rel=0.1)
            assert factors[path] == 1.0
        elif path == "classifier.weight":
            assert parameter.std().item() == pytest.approx(std / 4, rel=0.1)
            assert factors[path] == 0.25
    groups = scaled_groups(model, [name for name in factors if name.endswith("weight")], 1e-2, 0.1)
    assert sum(len(group["params"]) for group in groups) == len(factors)
    assert {group["lr"] for group in groups} == {1e-2 * factor for factor in factors.values()}


def test_scores_are_as_usual_where_keys_of_all_parts_are_64_wide() -> None:
    sizes = {"attention": "latent", "position": "rotary", "head_dim": 16, "qk_nope_head_dim": 48, "hidden_size": 128}
    plain, mup = (
        zoo.build("pre-norm", "causal-lm", num_hidden_layers=1, vocab_size=64, mup_base_width=128, **sizes, **one)
        for one in ({}, {"parametrization": "mup"})
    )
    scalings = [model.model.layers[0].self_attn.scaling for model in (plain, mup)]
    assert scalings == pytest.approx([1 / 8, 1 / 8])


FIXED: dict[str, dict[str, Any]] = {
    "gates.up_proj.weight": {"residual": "gated-hyper-connections"},
    "[fg]_b_proj.weight": {"mixer": "kimi-delta-attention"},
    "embedding_projection.weight": {"embedding_size": 16, "lm_head_transform": True, "tie_word_embeddings": True},
    "embed_tokens.weight": {"embedding_size": 16, "scale_embedding": True, "tie_word_embeddings": False},
    "token_types.weight": {"type_vocab_size": 64, "scale_embedding": True},
}
"""Settings with parameters that read what does not grow with the width, by patterns of their names."""


@pytest.mark.parametrize("pattern", FIXED)
def test_what_reads_a_fixed_width_is_learned_as_at_the_base_width(pattern: str) -> None:
    task = "masked-lm" if "token_types" in pattern else "causal-lm"
    settings = {**WIDE, "num_hidden_layers": 2, **FIXED[pattern]}
    model = zoo.build("pre-norm", task, parametrization="mup", seed=0, mup_base_width=128, **settings)
    factors = learning_rate_factors(model)
    found = {path: one for path, one in model.named_parameters() if re.search(pattern, path)}
    assert found
    for path, parameter in found.items():
        assert factors[path] == 1.0, path
        assert parameter.std().item() == pytest.approx(model.config.initializer_range, rel=0.15), path
    reads_embeddings = settings.get("lm_head_transform", False)
    assert model.config.logit_scale == (1.0 if reads_embeddings else 0.25)


def test_queries_of_depth_attention_are_learned_as_maps_of_the_width() -> None:
    model = zoo.build("attention-residuals", parametrization="mup", mup_base_width=128, **WIDE)
    factors = {path: one for path, one in learning_rate_factors(model).items() if path.endswith(".query")}
    assert factors and set(factors.values()) == {0.25}


@pytest.mark.parametrize(("name", "std"), [("ltg-bert-style", 0.88 * (2 / 5 / 128) ** 0.5), ("t5-style", 128**-0.5)])
def test_tables_of_positions_are_as_large_in_wide_models(name: str, std: float) -> None:
    def tables(width: int) -> list[float]:
        sizes: dict[str, Any] = {**WIDE, "hidden_size": width, "num_hidden_layers": 1}
        model = zoo.build(name, parametrization="mup", mup_base_width=128, seed=0, **sizes)
        return [one.std().item() for path, one in model.named_parameters() if path.endswith("position.weight")]

    for width in (128, 512):
        found = tables(width)
        assert found and found == pytest.approx([std] * len(found), rel=0.1)


@pytest.mark.parametrize("name", ["llama-style", "post-norm"])
def test_the_coordinate_check_tells_mup_from_the_usual(name: str) -> None:
    widths = (32, 64, 128, 256)
    settings: dict[str, Any] = {"widths": widths, "steps": 1, "mup_base_width": 32, "initializer_width": 1}
    grows = growth(check_coordinates(name, "causal-lm", **settings))
    stays = growth(check_coordinates(name, "causal-lm", parametrization="mup", **settings))
    assert grows > 0.4
    assert stays < 0.1


@pytest.mark.parametrize("widths", [(64, 100), (64, 64)])
def test_widths_that_show_no_growth_are_refused(widths: tuple[int, ...]) -> None:
    with pytest.raises(ZooError, match="two different multiples of head_dim=16"):
        check_coordinates("gpt2-style", widths=widths)


def test_a_coordinate_check_drops_nothing() -> None:
    assert zoo.config("bert-style").attention_dropout > 0
    first, second = (check_coordinates("bert-style", widths=(32, 64), steps=1) for _ in range(2))
    assert first == second


def test_a_coordinate_check_needs_an_update() -> None:
    with pytest.raises(ZooError, match="steps=0"):
        check_coordinates("gpt2-style", steps=0)


def test_a_network_is_a_mup_model_when_loaded(tmp_path: Any) -> None:
    model = zoo.build("gpt2-style@tiny:parametrization=mup,vocab_size=64")
    model.save_pretrained(tmp_path)
    loaded = zoo.load(tmp_path)
    ids = torch.arange(8)[None]
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert learning_rate_factors(loaded) == learning_rate_factors(model)


def test_the_page_has_the_recorded_table(monkeypatch):
    root = Path(__file__).parents[2]
    monkeypatch.syspath_prepend(str(root / "scripts/bench"))
    script = runpy.run_path(str(root / "scripts" / "bench" / "mup.py"))
    recorded = json.loads((root / "scripts" / "bench" / "mup.json").read_text(encoding="utf-8"))
    assert script["table"](recorded) in (root / "docs" / "training.md").read_text(encoding="utf-8")
