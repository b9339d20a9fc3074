import json
import re
from typing import Any

import pytest
import torch
from every_variant import EVERY_BODY
from hypothesis import given
from hypothesis import strategies as st

import zoo
from zoo.analysis.drawing import Drawing, Residual, Step, Together, compare, draw, to_svg, to_text
from zoo.analysis.drawing.layers import pattern, places
from zoo.registry import VARIANTS, list_variants

PRE_NORM = """\
decoder
  token embedding                100 × 64
  learned positions              added to the embeddings, at most 512
  dropout 0.1
╭─┴ 2 times ───
│ ├───────╮
│ │       LayerNorm
│ │       causal self-attention  4 heads of 16
│ │       dropout 0.1
│ + ◄─────╯
│ ├───────╮
│ │       LayerNorm
│ │       feed-forward           64 → 128 → 64, gelu
│ │       dropout 0.1
│ + ◄─────╯
╰─┬───
  LayerNorm

head
  linear                         64 → 100"""

EVERY_BUILD = [
    pytest.param(name, task, id=f"{name}-{task}", marks=[pytest.mark.nightly] * ((name, task) not in EVERY_BODY))
    for name in list_variants()
    for task in VARIANTS.get(name).tasks
]


def residuals(drawing: Drawing) -> list[Residual]:
    return [item for item in drawing.blocks[-1].items if isinstance(item, Residual)]


def labels(items) -> list[str]:
    return [item.label if isinstance(item, Step) else "together" for item in items]


def marked(name: str) -> dict[str, tuple[str, ...]]:
    return {step.path: step.quirks for step in draw(name).steps() if step.quirks}


@pytest.mark.parametrize(("name", "task"), EVERY_BUILD)
def test_every_build_can_be_drawn_from_what_its_layers_do(name, task):
    drawing = draw(f"{name}@tiny", task)
    assert all("could not be run" not in block.remark for block in drawing.blocks)
    assert [block.name for block in drawing.blocks] in (["encoder"], ["decoder"], ["encoder", "decoder"])
    for block in drawing.blocks:
        text = json.dumps(drawing.to_dict())
        assert ("cross-attention" in text) == (len(drawing.blocks) == 2) and all(layer.items for layer in block.layers)
    assert max(map(len, to_text(drawing, 80).splitlines())) <= 80


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        ("multi-head", "4 heads of 16, 2 for keys and values, no biases"),
        ("gated", "gated, 4 heads of 16, 2 for keys and values, no biases"),
        ("value-residual", "4 heads of 16, 2 for keys and values, no biases, value-residual in 3 of 4 layers"),
        ("masked-rows-uniform", "masked-rows-uniform, 4 heads of 16, 2 for keys and values, no biases"),
    ],
)
def test_layers_name_the_attention_that_they_have(attention, message):
    """Wherever its class is registered; where a class changes some layers, the others attend as usual."""
    steps = draw(f"llama-style@tiny:attention={attention},num_hidden_layers=4").steps()
    assert [step.detail for step in steps if step.kind == "attention"] == [message]


def test_a_drawing_as_text():
    assert to_text(draw("pre-norm@tiny:vocab_size=100")) == PRE_NORM


@pytest.mark.parametrize(
    ("placement", "branch", "after", "skip"),
    [
        ("pre", ["LayerNorm", "feed-forward"], [], []),
        ("post", ["feed-forward"], ["LayerNorm"], []),
        ("sandwich", ["LayerNorm", "feed-forward", "LayerNorm"], [], []),
        ("res-post", ["feed-forward", "LayerNorm"], [], []),
        ("deepnorm", ["feed-forward"], ["LayerNorm"], ["× 1.414"]),
        ("none", ["feed-forward"], [], []),
    ],
)
def test_norm_placements_look_different(placement, branch, after, skip):
    (*_, last) = residuals(draw(f"pre-norm@tiny:norm_placement={placement},dropout=0.0"))
    assert (labels(last.branch), labels(last.after), labels(last.skip)) == (branch, after, skip)


def test_parallel_sublayers_are_drawn_together():
    (only,) = residuals(draw("gptj-style@tiny"))
    together = only.branch[1]
    assert isinstance(together, Together) and labels(together.steps) == ["causal self-attention", "feed-forward"]
    assert "their outputs are summed" in to_text(draw("gptj-style@tiny"), None)


def test_sublayers_are_drawn_in_the_order_in_which_they_run():
    sublayers = [labels(residual.branch)[0] for residual in residuals(draw("marian-style@tiny"))]
    assert sublayers == ["causal self-attention", "cross-attention", "feed-forward"]


@pytest.mark.parametrize(
    "name, task, settings",
    [
        ("bert-style@tiny", "masked-lm", {}),
        ("bert-style@tiny", "sequence-classification", {}),
        ("bert-style@tiny", "token-classification", {}),
        ("llama-style@tiny", "sequence-classification", {"classifier_positions": 3, "classifier_dropout": 0.1}),
    ],
)
def test_modules_of_a_head_are_drawn_in_the_order_in_which_they_run(
    name: str, task: str, settings: dict[str, Any]
) -> None:
    model = zoo.build(name, task, **settings)
    ran: list[str] = []
    for path, module in model.named_children():
        module.register_forward_hook(lambda *_, path=path: ran.append(path))
    model(torch.tensor([[1, 2, 3]]))
    drawn = [step.path for step in draw(name, task, **settings).head if hasattr(model, step.path)]
    assert drawn == ran[1:] and len(drawn) > 1, "the body is no step of the head"


def test_what_a_variants_own_layer_adds_is_drawn_where_it_acts():
    drawing = draw("universal@tiny")
    assert labels(drawing.blocks[0].items[:1]) == ["step embedding"] and "one layer" in drawing.blocks[0].remark
    assert "A learned vector for every application" in to_text(drawing)


def test_shared_weights_are_named():
    drawing = draw("vanilla@tiny+cross-attention-reuses-self+feed-forward-reuses-cross-norm")
    _, cross, feed_forward = residuals(drawing)
    assert "weights of self_attn" in cross.branch[0].detail
    assert "weights of cross_attn_residual.norm_out" in feed_forward.after[0].detail


def test_types_of_layers_are_shown_as_a_pattern():
    assert "1 sliding, 1 full" in draw("gemma2-style@tiny").blocks[0].remark
    smollm = draw("smollm3-style@tiny:num_hidden_layers=8")
    assert smollm.blocks[0].remark == "by layer: 3 full, 1 full without positions, again and again"


def test_layers_that_differ_in_their_parts_are_drawn_apart():
    first, others = draw("deepseek-v3-style@tiny:num_hidden_layers=5,first_k_dense_replace=2").blocks[0].layers
    assert (first.repeats, first.where, others.repeats, others.where) == (2, "layers 1, 2", 3, "layers 3 to 5")
    assert "mixture of experts" in labels(others.items[1].branch)
    assert "gated feed-forward" in labels(first.items[1].branch)
    bare, normed = draw("modernbert-style@tiny:num_hidden_layers=4").blocks[0].layers
    assert labels(bare.items[0].branch) == ["self-attention"]
    assert labels(normed.items[0].branch) == ["LayerNorm", "self-attention"]
    assert "window 16 in 2 of 3 layers" in normed.items[0].branch[1].detail
    assert to_text(draw("modernbert-style@tiny:num_hidden_layers=4")).count("╭─┴") == 2


def test_positions_are_drawn_in_layers_that_have_them():
    drawing = draw("qwen3-next-style@tiny:num_hidden_layers=4")
    assert "on queries and keys in 1 of 4 layers" in to_text(drawing)
    assert to_svg(drawing).partition("</desc>")[2].count(">rotary positions<") == 1
    assert "on queries and keys in every layer" in to_text(draw("llama-style@tiny"))
    assert "no positions" in to_text(draw("kimi-linear-style@tiny"))
    assert "in 3 of 4 layers" in to_text(draw("smollm3-style@tiny:num_hidden_layers=4"))


def test_the_kinds_of_layers_that_two_models_have_most_of_are_compared_with_each_other():
    deepseek = "deepseek-v3-style@tiny:num_hidden_layers=3,first_k_dense_replace"
    words = compare(draw(f"{deepseek}=0"), draw(f"{deepseek}=1")).words
    assert "decoder: 3 times in " in words[-1] and "1 times (layer 1) and 2 times (layers 2, 3)" in words[-1]
    assert all("decoder, layer 1:" in word for word in words[:-1]) and len(words) > 3


@given(st.lists(st.sampled_from(["full", "sliding", "linear"]), min_size=1, max_size=12))
def test_a_pattern_gives_the_type_of_every_layer(kinds):
    words = pattern(kinds)
    if len(set(kinds)) == 1:
        assert words == ""
        return
    repeated = words.endswith(", again and again")
    runs = [run.split() for run in words.removesuffix(", again and again").split(", ")]
    period = [kind for count, kind in runs for _ in range(int(count))]
    assert len(period) < len(kinds) if repeated else len(period) == len(kinds)
    assert [period[at % len(period)] for at in range(len(kinds))] == kinds


@pytest.mark.parametrize(
    ("numbers", "total", "words"),
    [
        ([0], 22, "layer 1"),
        ([0, 1, 2], 3, "layers 1 to 3"),
        ([3, 7, 11], 12, "every 4th layer"),
        ([0, 1, 2, 4, 5, 6], 8, "all but every 4th layer"),
        ([1], 2, "layer 2"),
        ([3], 6, "layer 4"),
        ([0, 1, 2, 4, 5], 6, "layers 1 to 3, 5, 6"),
        ([0, 1, 4, 6, 7, 8], 9, "layers 1, 2, 5, 7 to 9"),
    ],
)
def test_places_of_layers_in_few_words(numbers, total, words):
    assert places(numbers, total) == words


def test_attention_of_another_kind_is_named():
    assert "self-attention  differential, 4 heads of 16" in to_text(draw("diff-transformer@tiny"))


@pytest.mark.parametrize(
    ("quirk", "where"),
    [
        ("vanilla@tiny+cross-attention-reuses-self", "model.decoder.layers.0.cross_attn"),
        ("vanilla@tiny+dropout-on-the-skip", "model.encoder.layers.0.mlp_residual.skip"),
        ("vanilla@tiny+scores-scaled-by-model-width", "model.encoder.layers.0.self_attn"),
        ("vanilla@tiny+masks-from-token-ids", "attention_mask"),
        ("d2l-style@tiny+every-step-is-position-zero", "model.decoder.position"),
        ("odom-style@tiny+heads-share-weights", "model.decoder.layers.0.self_attn"),
        ("odom-style@tiny+softmax-over-the-batch", "model.decoder.layers.0.cross_attn"),
        ("explicando@tiny+self-attention-stands-bare", "model.decoder.layers.0.self_attn"),
        ("explicando@tiny+decoder-reads-the-source", "decoder_inputs"),
    ],
)
def test_quirks_are_named_where_they_act(quirk, where):
    assert marked(quirk)[where] == (quirk.partition("+")[2],)


def test_a_long_name_is_broken_into_lines_that_can_be_read():
    assert 'font-size="18" text-anchor="start">vanilla<' in to_svg(draw("vanilla"))
    long = draw("vanilla@tiny" + "".join(f"+{quirk}" for quirk in VARIANTS.get("vanilla").quirks))
    rows = [row for row in re.findall(r'font-size="11" text-anchor="start">([^<]+)<', to_svg(long)) if "+" in row]
    assert len(rows) > 1 and "".join(reversed(rows)).replace(" ", "") == long.name


def test_a_quirk_of_how_layers_repeat_is_named():
    assert draw("odom-style@tiny+layers-share-weights").blocks[0].quirks == ("layers-share-weights",)


def test_without_quirks_nothing_is_named():
    assert marked("vanilla@tiny") == {}


def test_a_layer_that_cannot_be_run_is_drawn_as_it_is_defined(monkeypatch):
    def fail(*args):
        raise TypeError("this layer wants more")

    monkeypatch.setattr("zoo.analysis.drawing.reading.trace", fail)
    block = draw("pre-norm@tiny").blocks[0]
    assert "this layer wants more" in block.remark and "causal self-attention" in labels(block.items[:1])
