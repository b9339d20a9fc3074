from __future__ import annotations

import json

import pytest

from zoo.drawing import Drawing, Residual, Step, Together, draw, to_text
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

EVERY_BUILD = [(name, task) for name in list_variants() for task in VARIANTS.get(name).tasks]


def residuals(drawing: Drawing) -> list[Residual]:
    return [item for item in drawing.blocks[-1].layer if isinstance(item, Residual)]


def labels(items) -> list[str]:
    return [item.label if isinstance(item, Step) else "together" for item in items]


def marked(name: str) -> dict[str, tuple[str, ...]]:
    return {step.path: step.quirks for step in draw(name).steps() if step.quirks}


@pytest.mark.parametrize(("name", "task"), EVERY_BUILD, ids=str)
def test_every_build_can_be_drawn_from_what_its_layers_do(name, task):
    drawing = draw(f"{name}@tiny", task)
    assert all("could not be run" not in block.remark for block in drawing.blocks)
    assert [block.name for block in drawing.blocks] in (["encoder"], ["decoder"], ["encoder", "decoder"])
    for block in drawing.blocks:
        text = json.dumps(drawing.to_dict())
        assert ("cross-attention" in text) == (len(drawing.blocks) == 2)
        assert block.layer
    assert max(map(len, to_text(drawing, 80).splitlines())) <= 80


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
def test_norm_placements_can_be_told_apart(placement, branch, after, skip):
    (*_, last) = residuals(draw(f"pre-norm@tiny:norm_placement={placement},dropout=0.0"))
    assert (labels(last.branch), labels(last.after), labels(last.skip)) == (branch, after, skip)


def test_parallel_sublayers_stand_together():
    (only,) = residuals(draw("gptj-style@tiny"))
    together = only.branch[1]
    assert isinstance(together, Together)
    assert labels(together.steps) == ["causal self-attention", "feed-forward"]
    assert "their outputs are summed" in to_text(draw("gptj-style@tiny"), None)


def test_sublayers_stand_in_the_order_in_which_they_run():
    sublayers = [labels(residual.branch)[0] for residual in residuals(draw("marian-style@tiny"))]
    assert sublayers == ["causal self-attention", "cross-attention", "feed-forward"]


def test_what_a_variants_own_layer_adds_is_drawn_where_it_acts():
    drawing = draw("universal@tiny")
    assert labels(drawing.blocks[0].layer[:1]) == ["StepEmbedding"]
    assert "one layer" in drawing.blocks[0].remark
    assert "A learned vector for every application" in to_text(drawing)


def test_shared_weights_are_told():
    drawing = draw("vanilla@tiny+cross-attention-reuses-self+feed-forward-reuses-cross-norm")
    _, cross, feed_forward = residuals(drawing)
    assert "weights of self_attn" in cross.branch[0].detail
    assert "weights of cross_attn_residual.norm_out" in feed_forward.after[0].detail


def test_layers_of_several_kinds_are_told():
    assert "sliding, full" in draw("gemma2-style@tiny").blocks[0].remark
    assert "full, full without positions" in draw("smollm3-style@tiny").blocks[0].remark


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


def test_a_quirk_of_how_layers_repeat_is_named():
    assert draw("odom-style@tiny+layers-share-weights").blocks[0].quirks == ("layers-share-weights",)


def test_without_quirks_nothing_is_named():
    assert marked("vanilla@tiny") == {}


def test_a_layer_that_cannot_be_run_is_drawn_as_it_is_defined(monkeypatch):
    def fail(*args):
        raise TypeError("this layer wants more")

    monkeypatch.setattr("zoo.drawing.reading.trace", fail)
    block = draw("pre-norm@tiny").blocks[0]
    assert "this layer wants more" in block.remark
    assert "causal self-attention" in labels(block.layer[:1])
