"""What a variant cannot do is refused by name when it is asked for, and stands on its card."""

import pytest

import zoo
from zoo.base.errors import UnsupportedBackendError
from zoo.models.transformer import BACKENDS

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
