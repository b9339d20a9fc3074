"""Ejected files: they compute what their models do, they are short, and what has no plain form is refused by name."""

from __future__ import annotations

import ast
import random
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import zoo
from zoo.analysis.eject import code_difference, eject
from zoo.analysis.eject.ejecting import text_of
from zoo.analysis.eject.proof import prove, randomise
from zoo.base.errors import OutputExistsError, UnsupportedOperationError, ZooError
from zoo.base.files import replace_part
from zoo.building.builder import config as configure
from zoo.models import NORMS, RMSNorm
from zoo.models.parts import ATTENTIONS, FEED_FORWARDS, POSITIONS, RESIDUALS
from zoo.registry import describe, list_variants

ROOT = Path(__file__).parents[2]
MIXED = {
    "position": POSITIONS,
    "norm": NORMS,
    "feed_forward": FEED_FORWARDS,
    "attention": ATTENTIONS,
    "residual": RESIDUALS,
}
"""Parts that are drawn."""

BY_DAY = [("gpt2-style", "causal-lm"), ("vanilla+faithful", "seq2seq-lm")]

REFUSED = {
    "attention-residuals": "residual='attention-residuals'",
    "gated-hyper-connections": "residual='gated-hyper-connections'",
    "manifold-hyper-connections": "residual='manifold-hyper-connections'",
    "multi-token-prediction": "num_nextn_predict_layers=1",
}
"""Variants without a plain form, and what their refusals name."""

BY_NIGHT = [
    (name, task)
    for name in (*list_variants(), "vanilla+faithful")
    for task in describe(name.partition("+")[0]).tasks
    if name not in REFUSED and (name, task) not in BY_DAY
]

LINES = {
    "gpt2-style": 160,
    "llama-style": 180,
    "vanilla": 260,
    "t5-style": 260,
    "deepseek-v3-style": 330,
    "qwen3-next-style": 380,
}
"""The most lines of code of a file."""


def tiny(name: str) -> str:
    variant, plus, quirks = name.partition("+")
    return f"{variant}@tiny{plus}{quirks}"


def source(name: str, task: str | None = None) -> str:
    task = task or describe(name).tasks[0]
    return text_of(configure(name, task), task, name)


def lines_of_code(text: str) -> int:
    """Lines without docstrings, comments and blank lines."""
    within: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            within |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(text.splitlines(), start=1)
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in within for number, line in lines
    )


@pytest.mark.parametrize(
    ("name", "task"), [*BY_DAY, *(pytest.param(*one, marks=pytest.mark.nightly) for one in BY_NIGHT)]
)
def test_a_file_computes_what_its_model_does(name, task):
    ejected = eject(tiny(name), task=task)
    assert ejected.differences["float64"] < 1e-12
    assert "import zoo" not in ejected.text and "transformers import" not in ejected.text
    assert "# Proved when written" in ejected.text


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "what"), REFUSED.items())
def test_a_variant_without_a_plain_form_is_refused_by_name(name, what):
    with pytest.raises(UnsupportedOperationError, match=f"^{what} has no plain form"):
        source(f"{name}@tiny")


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(40))
def test_random_mixes_of_parts_compute_the_same_or_are_refused_by_name(seed):
    """A mix that cannot be built is drawn again; a refusal names a setting and never a difference."""
    draw = random.Random(seed)
    while True:
        drawn = {field: draw.choice([*registry.names()]) for field, registry in MIXED.items()}
        drawn["norm_placement"] = draw.choice(["pre", "post", "sandwich", "res-post", "none"])
        try:
            model = zoo.build("pre-norm@tiny", draw.choice(describe("pre-norm").tasks), seed=0, **drawn)
        except ZooError:
            continue
        break
    randomise(model)
    try:
        ejected = eject(model)
    except UnsupportedOperationError as error:
        assert "has no plain form" in str(error), drawn
        return
    assert ejected.differences["float64"] < 1e-12, drawn


@pytest.mark.thorough
def test_the_page_shows_the_files_as_they_are():
    ejected = runpy.run_path(str(ROOT / "scripts/site/ejected.py"))
    page = (ROOT / "docs/eject.md").read_text(encoding="utf-8")
    found = ejected["parts"](page)
    assert len(found) == 3
    for command, text in found.items():
        assert replace_part(page, command, text) == page, "run python scripts/site/ejected.py"


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "most"), LINES.items())
def test_files_are_short(name, most):
    text = source(name)
    assert lines_of_code(text) <= most
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize(("a", "b", "fewer"), [("pre-norm", "post-norm", 15), ("gpt2-style", "llama-style", 70)])
def test_differences_are_small(a, b, fewer):
    difference = code_difference(a, b)
    assert 0 < difference.changed < fewer
    assert difference.text.startswith(f"--- {a}\n+++ {b}\n")
    assert "<pre>" in difference._repr_html_()


def test_nothing_that_the_configuration_does_not_use_is_in_a_file():
    text = source("llama-style")
    assert not [word for word in ("dropout", "LayerNorm", "memory", "if config.", "if self.config.") if word in text]


def test_quirks_are_commented_at_their_lines():
    text = source("vanilla+faithful", "seq2seq-lm")
    assert text.count("# The original's defect") >= 6


def test_a_wrong_file_is_refused_by_what_differs(tmp_path):
    file = tmp_path / "model.py"
    model = zoo.build("pre-norm@tiny", "causal-lm", seed=0)
    text = text_of(model.config, "causal-lm", "pre-norm")
    file.write_text(text.replace("self.config.head_dim**-0.5", "self.config.head_dim**-1.0"), encoding="utf-8")
    with pytest.raises(UnsupportedOperationError, match=r"outputs torch\.float32 of the file would be"):
        prove(file, model, "causal-lm", is_new=True)


def test_a_part_without_a_plain_form_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(NORMS, "_items", dict(NORMS._items))
    NORMS.register("my-norm")(RMSNorm)
    with pytest.raises(UnsupportedOperationError, match=r"norm='my-norm' has no plain form"):
        source("pre-norm:norm=my-norm")


def test_a_file_is_not_replaced_unless_forced(tmp_path):
    file = tmp_path / "model.py"
    file.write_text("mine", encoding="utf-8")
    with pytest.raises(OutputExistsError, match="--force"):
        eject("pre-norm@tiny", file)
    assert file.read_text(encoding="utf-8") == "mine"


@pytest.mark.slow
def test_a_changed_file_trains_and_its_weights_go_back(tmp_path):
    """As a user would: another activation, training on a text, the weights in a model of the zoo."""
    file, weights, text = (
        tmp_path / "model.py",
        tmp_path / "weights.safetensors",
        Path(zoo.__file__).parent / "data/tasks/data/phrases/train.tsv",
    )
    eject("gpt2-style@tiny:vocab_size=256", file)
    changed = file.read_text(encoding="utf-8").replace(
        'F.gelu(self.up_proj(x), approximate="tanh")', "F.relu(self.up_proj(x))"
    )
    file.write_text(changed, encoding="utf-8")
    command = [sys.executable, str(file), "--train", str(text), "--save", str(weights)]
    losses = [float(line.split()[-1]) for line in subprocess.check_output(command, text=True).splitlines()]
    assert len(losses) == 100 and losses[-1] < losses[0] / 2
    model = zoo.build("gpt2-style@tiny:vocab_size=256,hidden_act=relu", "causal-lm")
    missing, unexpected = model.load_state_dict(load_file(weights), strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    model.tie_weights()
    ids = torch.tensor(list(text.read_bytes()[: 64 * 64])).view(64, 64)
    with torch.no_grad():
        assert model(ids, labels=ids).loss.item() < losses[0] / 2
