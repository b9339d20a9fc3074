"""Sizes that make variants equal."""

import pytest

from zoo.analysis.measuring import flops_per_token
from zoo.base.errors import ConfigError
from zoo.building.builder import skeleton
from zoo.comparison.setup.matching import TOLERANCE, Sizes, match
from zoo.training import Recipe

pytestmark = pytest.mark.thorough

SIZE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256, "vocab_size": 99}


def settings_of(name):
    return Recipe("copy", model=SIZE).model_settings(name)


def measured(task, *, flops=False):
    def measure(name):
        model = skeleton(name, task, **settings_of(name))
        return flops_per_token(model, 12).forward if flops else model.num_parameters()

    return measure


def matched(name, task="causal-lm", by=None, flops=False, baseline="pre-norm"):
    measure = measured(task, flops=flops)
    found = match(Sizes(name, task, settings_of(name)), measure(baseline), measure, by)
    # What is claimed is what the name builds.
    assert measure(found.name) == found.value and abs(found.value / measure(baseline) - 1) <= TOLERANCE
    return found


def test_what_is_equal_already_stays_as_it_is():
    assert matched("post-norm").settings == {} and matched("post-norm").name == "post-norm"


@pytest.mark.parametrize(("name", "flops"), [("universal", False), ("pre-norm@tiny", False), ("llama-style", True)])
def test_widths_are_found(name, flops):
    found = matched(name, by="width", flops=flops)
    assert found.settings["hidden_size"] % (2 * SIZE["num_attention_heads"]) == 0


def test_the_intermediate_size_alone():
    assert set(matched("llama-style", by="intermediate").settings) == {"intermediate_size"}


def test_both_stacks_follow():
    asymmetric = "pre-norm:feed_forward=gated,decoder_intermediate_size=128"
    found = matched(asymmetric, "seq2seq-lm", by="intermediate")
    assert found.settings["intermediate_size"] == pytest.approx(2 * found.settings["decoder_intermediate_size"], abs=1)
    deep = Sizes("pre-norm", "seq2seq-lm", {**SIZE, "decoder_layers": 4})
    assert deep.following("num_hidden_layers", "decoder_layers", 3) == {"num_hidden_layers": 3, "decoder_layers": 6}
    even = Sizes("pre-norm", "seq2seq-lm", SIZE)  # where the decoder's follows by itself
    assert even.following("num_hidden_layers", "decoder_layers", 3) == {"num_hidden_layers": 3}


def test_settings_in_a_name_stay():
    found = matched("pre-norm:hidden_size=32")
    assert "hidden_size" not in found.settings and "hidden_size=32" in found.name
    with pytest.raises(ConfigError, match="sets its hidden_size itself; match it by something else: intermediate"):
        matched("pre-norm:hidden_size=32", by="width")


def test_an_impossible_match_names_the_nearest():
    with pytest.raises(ConfigError, match=r"by depth: the nearest is 'llama-style' with 135,872, -6.6%"):
        matched("llama-style", by="depth")
    every_size = "pre-norm:hidden_size=512,intermediate_size=8,num_hidden_layers=1"
    with pytest.raises(ConfigError, match="its name sets all of them: the nearest is"):
        matched(every_size)
