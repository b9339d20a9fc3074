"""Every sublayer of a new narrow model adds to the residual stream what is neither lost in it nor drowns it."""

from typing import Any

import pytest
import torch

import zoo
from zoo.analysis.measuring.signals import measure_signals, recorded
from zoo.base.errors import ZooError
from zoo.models.parts import PART_FIELDS
from zoo.registry import list_variants

SIZES: dict[str, Any] = {
    **{"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 64},
    **{"num_hidden_layers": 2, "dropout": 0.0},
}
LEAST, MOST = 0.05, 20.0  # Sizes of branches relative to the stream

SMALL = {"rezero": "begins with branches of zero", "nlpt-encoder": "the original starts with 0.02 at every width"}
PARTS = [
    f"pre-norm:{field}={name}"
    for field, table in PART_FIELDS.items()
    for name in table
    if table.origin(name).built_in and field != "mixer"
]


@pytest.mark.parametrize("name", list_variants())
def test_every_branch_of_every_variant_counts(name: str) -> None:
    shares = [one.share for one in measure_signals(name, **SIZES)]
    assert shares and (max(shares) < LEAST if name in SMALL else LEAST < min(shares) <= max(shares) < MOST)


@pytest.mark.parametrize("name", PARTS)
def test_every_branch_with_every_part_counts(name: str) -> None:
    try:
        zoo.config(name, "causal-lm", **SIZES)
    except ZooError as error:
        pytest.skip(str(error))
    shares = [one.share for one in measure_signals(name, "causal-lm", **SIZES)]
    assert shares and LEAST < min(shares) <= max(shares) < MOST


@pytest.mark.parametrize("name", ["pre-norm@tiny:decoder_vocab_size=20", "odom-style@tiny+works-on-features"])
def test_signals_of_fewer_target_tokens_and_of_features(name: str) -> None:
    assert all(one.share > 0 for one in measure_signals(name, "seq2seq-lm", vocab_size=100))


def test_a_step_on_the_sphere_counts_and_not_where_it_leads() -> None:
    """Of rates of 0.05, between vectors of one length."""
    shares = [one.share for one in measure_signals("ngpt", **SIZES)]
    assert all(0.05 < one < 0.1 for one in shares)  # 0.05 times the root of two, if they are orthogonal


def test_signals_are_what_a_forward_adds() -> None:
    """Of a model without norms after branches, the stream grows by just the branch."""
    model = zoo.build("gpt2-style", "causal-lm", seed=0, **SIZES).eval()
    ids = torch.arange(12)[None]
    with torch.no_grad(), recorded(model) as signals:
        logits = model(input_ids=ids).logits
    with torch.no_grad():
        states = model(input_ids=ids, output_hidden_states=True).hidden_states
        assert torch.equal(model(input_ids=ids).logits, logits)
    assert len(signals) == 4
    streams = [float(one.square().mean().sqrt()) for one in states[:2]]
    assert [signals[0].stream, signals[2].stream] == pytest.approx(streams, rel=1e-5)
