"""Caches of models with sliding windows: whatever attention sees is kept, in every kind of cache."""

import pytest
import torch
from transformers import cache_utils
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache, StaticCache

from zoo.base.errors import InputError, UnsupportedOperationError
from zoo.fast import fast_paths
from zoo.fast.preallocated_cache import CACHE_NAME
from zoo.testing.generating import assert_same_text, generate
from zoo.testing.subjects import SOURCE_LENGTH, new_subject

TYPES = "['sliding_attention', 'full_attention']"
SETTINGS = ("sliding_window=1", "sliding_window=3", f"sliding_window=3,layer_types={TYPES}")


def dynamic(config) -> Cache:
    """As transformers' documentation makes a cache for an encoder-decoder."""
    return EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))


def static(config) -> Cache:
    """The same with a fixed size."""
    sizes = (16, SOURCE_LENGTH)
    return EncoderDecoderCache(*(StaticCache(config, max_cache_len=size) for size in sizes))


@pytest.mark.parametrize("make", [None, dynamic, static, lambda config: dynamic(None)])
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_given_cache_is_continued_rightly(settings, make):
    subject = new_subject(f"pre-norm:{settings}", "seq2seq-lm")
    expected = generate(subject, use_cache=False)
    given = {} if make is None else {"past_key_values": make(subject.config)}
    assert_same_text(generate(subject, **given), expected, "with this cache = without")
    with fast_paths(cache_room="never"):
        assert_same_text(generate(subject), expected, "with transformers' own cache = without")


@pytest.mark.parametrize("name", ["past_key_values", "cache"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_decoder_steps_through_a_given_cache(settings, name):
    subject = new_subject(f"llama-style:{settings}", "causal-lm")
    ids = subject.inputs()["input_ids"]
    for cache in (None, DynamicCache(config=subject.config), DynamicCache()):
        pieces = []
        for token in ids.split(1, dim=1):
            with torch.no_grad():
                outputs = subject.model(token, **{name: cache}, use_cache=True)
            cache = getattr(outputs, CACHE_NAME)
            pieces.append(outputs.logits)
        torch.testing.assert_close(torch.cat(pieces, dim=1), subject.run())


@pytest.mark.parametrize(
    ("variant", "task"),
    [
        ("llama-style", "causal-lm"),
        ("pre-norm", "seq2seq-lm"),
        ("pre-norm", "feature-extraction"),
        ("bert-style", "feature-extraction"),
        ("bert-style", "sequence-classification"),
    ],
)
def test_either_name_of_a_cache_is_read_and_two_caches_are_refused(variant, task):
    subject = new_subject(variant, task)
    outputs = []
    for name in ("past_key_values", "cache"):
        prefix = dynamic(None) if subject.config.is_encoder_decoder else DynamicCache()
        with torch.no_grad():
            subject.model(**subject.inputs(), **{name: prefix})
        outputs.append(prefix.get_seq_length())
    assert outputs[0] == outputs[1] > 0
    with pytest.raises(InputError, match="names of one argument"):
        subject.model(**subject.inputs(), past_key_values=prefix, cache=DynamicCache())


def test_a_window_bounds_self_attention_alone():
    subject = new_subject(f"pre-norm:sliding_window=3,layer_types={TYPES}", "seq2seq-lm")
    cache = generate(subject).past_key_values
    kept = [[layer.keys.shape[2] for layer in part.layers] for part in vars(cache).values() if isinstance(part, Cache)]
    written = cache.get_seq_length()
    assert kept == [[2, written, 2], [SOURCE_LENGTH] * 3]


def test_a_window_bounds_the_cache_of_a_decoder():
    subject = new_subject(f"llama-style:sliding_window=3,layer_types={TYPES}", "causal-lm")
    cache = subject.model(**subject.inputs(), use_cache=True).past_key_values
    kept = [layer.keys.shape[2] for layer in cache.layers]
    assert kept == [2, subject.inputs()["input_ids"].shape[1]]


@pytest.mark.parametrize("types", [TYPES, "['full_attention', 'sliding_attention']"])
@pytest.mark.parametrize("position", ["alibi", "t5"])
def test_distances_are_read_in_pieces_into_a_static_cache(position, types):
    subject = new_subject(f"pre-norm:position={position},sliding_window=3,layer_types={types}", "causal-lm")
    given = {"cache_implementation": "static", "prefill_chunk_size": 2, "disable_compile": True}
    assert_same_text(generate(subject, **given), generate(subject), "read in pieces = at once")


def test_assisted_decoding_takes_back_what_a_window_has_passed():
    subject = new_subject(f"pre-norm:sliding_window=3,layer_types={TYPES}", "seq2seq-lm")
    inputs = {name: ids[:1] for name, ids in subject.inputs().items() if name == "input_ids"}
    settings = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}
    assistant = subject.copy()
    with torch.no_grad():  # mostly right, and sometimes wrong
        assistant.lm_head.weight.add_(0.05 * torch.randn(assistant.lm_head.weight.shape))
    greedy = subject.model.generate(**inputs, **settings)
    assert subject.model.generate(**inputs, **settings, assistant_model=assistant).tolist() == greedy.tolist()


@pytest.mark.skipif(not hasattr(cache_utils, "Fp8QuantizedLayer"), reason="transformers quantizes by packages alone")
def test_assisted_decoding_refuses_a_quantized_cache():
    """transformers would crop the tokens that are not quantized yet, and count the quantized ones as before."""
    model = new_subject("llama-style", "causal-lm").model
    ids, settings = torch.tensor([[3, 4, 5, 3, 4]]), {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None}
    quantized = {"cache_implementation": "quantized", "cache_config": {"backend": "fp8"}}
    assert model.generate(ids, **settings, **quantized).shape == (1, 9)
    with pytest.raises(UnsupportedOperationError, match="with a quantized cache, .* leave one out"):
        model.generate(ids, **settings, **quantized, prompt_lookup_num_tokens=2)
