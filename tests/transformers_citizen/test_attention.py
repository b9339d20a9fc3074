"""Attention weights from every backend, masks only where something is masked, and backends that are refused."""

from contextlib import contextmanager
from unittest.mock import patch

import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface
from transformers_citizen.support import ASSORTED, ONE_OF_EACH, over, prompt, tiny, warnings_of

import zoo
from zoo.base.errors import UnsupportedBackendError, UnsupportedOperationError
from zoo.models import Attention, ZooPreTrainedModel
from zoo.models.transformer import BACKENDS

WEIGHTS = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")


def padded(subject):
    """Inputs with a first source that ends in padding."""
    inputs = subject.inputs()
    mask = torch.ones_like(inputs["input_ids"])
    mask[0, -2:] = 0
    return {**inputs, "attention_mask": mask}


@contextmanager
def calls_of_sdpa():
    """Modules, masks and options with which a backend is called."""
    sdpa, calls = ALL_ATTENTION_FUNCTIONS["sdpa"], []

    def spy(module, query, key, value, attention_mask, **options):
        calls.append((module, attention_mask, options))
        return sdpa(module, query, key, value, attention_mask, **options)

    with patch.dict(AttentionInterface._global_mapping, sdpa=spy):
        yield calls


@over(ASSORTED)
def test_attention_weights_come_from_any_backend(pair):
    subject = tiny(pair)
    eager = subject.rebuilt(attn_implementation="eager")
    expected = eager(**padded(subject), output_attentions=True)
    for backend in set(subject.model.supported_backends()) & {"sdpa", "flex_attention"}:
        model = subject.rebuilt(attn_implementation=backend, dtype=torch.float64)
        outputs = model(**padded(subject), output_attentions=True)
        assert model.config._attn_implementation == backend
        for name in WEIGHTS:
            if getattr(expected, name, None) is not None:
                assert len(getattr(outputs, name)) == len(getattr(expected, name))
                for one, other in zip(getattr(outputs, name), getattr(expected, name), strict=True):
                    torch.testing.assert_close(one, other)


@over(ONE_OF_EACH)
def test_asking_for_weights_warns_once_and_changes_one_call_only(pair):
    subject = tiny(pair)
    model = subject.rebuilt(attn_implementation="sdpa")
    with calls_of_sdpa() as calls, warnings_of("zoo.fast.attention") as warnings:
        model(**subject.inputs(), output_attentions=True)
        assert not calls
        model(**subject.inputs(), output_attentions=True)
        assert len(warnings) == 1
        assert "sdpa returns no attention weights" in warnings[0]
        outputs = model(**subject.inputs())
    assert calls
    assert getattr(outputs, "attentions", None) is None
    assert getattr(outputs, "cross_attentions", None) is None


@over(ONE_OF_EACH)
def test_no_mask_is_made_where_nothing_is_masked(pair):
    subject = tiny(pair)
    model = subject.rebuilt(attn_implementation="sdpa")
    inputs = subject.inputs()
    with calls_of_sdpa() as calls:
        model(**inputs, attention_mask=torch.ones_like(inputs["input_ids"]))
        assert calls
        assert all(mask is None for _, mask, _ in calls)
        calls.clear()
        model(**padded(subject))
        assert any(mask is not None for _, mask, _ in calls)


@over(ONE_OF_EACH)
def test_options_of_a_call_reach_every_attention(pair):
    subject = tiny(pair)
    model = subject.rebuilt(attn_implementation="sdpa")
    with calls_of_sdpa() as calls:
        model(**subject.inputs(), of_a_kernel="asked for")
    reached = {(id(module), options.get("of_a_kernel")) for module, _, options in calls}
    attentions = {id(module) for module in model.modules() if isinstance(module, Attention)}
    assert reached == {(attention, "asked for") for attention in attentions}


@over(ONE_OF_EACH[::2])
def test_each_forward_dispatches_to_the_backend_of_the_moment(pair):
    subject = tiny(pair)
    model = subject.copy()
    expected = subject.run(model)
    for backend in ("eager", "sdpa"):
        model.set_attn_implementation(backend)
        parts = [part for part in model.modules() if isinstance(part, ZooPreTrainedModel)]
        assert {part.config._attn_implementation for part in parts} == {backend}
        torch.testing.assert_close(subject.run(model), expected)


@over(ONE_OF_EACH)
def test_a_configuration_can_ask_for_weights_of_every_stack(pair):
    subject = tiny(pair)
    model = subject.rebuilt(attn_implementation="eager")
    model.config.output_attentions = model.config.output_hidden_states = True
    outputs = model(**subject.inputs())
    asked = subject.model(**subject.inputs(), output_attentions=True, output_hidden_states=True)
    assert outputs.keys() == asked.keys()


@over(ONE_OF_EACH)
def test_pruning_heads_is_refused_clearly(pair):
    with pytest.raises(UnsupportedOperationError, match="num_attention_heads"):
        tiny(pair).model.prune_heads({0: [1]})


@over(ONE_OF_EACH[::2])
def test_a_static_cache_gives_weights_too(pair):
    subject = tiny(pair)
    settings = dict(
        max_new_tokens=3, min_new_tokens=3, return_dict_in_generate=True, output_attentions=True, disable_compile=True
    )
    dynamic = subject.model.generate(**prompt(subject), **settings)
    static = subject.model.generate(**prompt(subject), **settings, cache_implementation="static")
    name = "attentions" if subject.stack == "decoder" else "decoder_attentions"
    for one, other in zip(static[name], dynamic[name], strict=True):
        torch.testing.assert_close(one[0][..., : other[0].shape[-1]], other[0])


ORIGINALS = zoo.list_variants(tag="original")


@pytest.mark.parametrize("name", [*zoo.list_variants(), *(f"{name}+faithful" for name in ORIGINALS)])
def test_a_backend_is_either_declared_or_refused_and_on_the_card(name):
    card = zoo.describe(name)
    model = zoo.build(f"{name}@tiny" if "+" not in name else name.replace("+", "@tiny+"), vocab_size=20)
    supported = model.supported_backends()
    assert "eager" in supported
    assert model._supports_sdpa is ("sdpa" in supported)
    assert model._supports_flex_attn is ("flex_attention" in supported)
    assert model._supports_flash_attn is ("flash_attention_2" in supported)
    for backend in BACKENDS:
        on_the_card = any(backend in limit for limit in card.limits)
        assert on_the_card is (backend not in supported), (backend, card.limits)
        if on_the_card:
            with pytest.raises(UnsupportedBackendError, match=f"{backend}.*valid: {', '.join(supported)}"):
                model.set_attn_implementation(backend)


def test_a_card_follows_the_settings():
    assert zoo.describe("pre-norm").limits == ()
    limit, paging = zoo.describe("pre-norm:position=alibi").limits
    assert "flash_attention_2, flash_attention_3" in limit
    assert "alibi" in limit
    assert "continuous batching" in paging
