"""The cache that `generate` makes: it grows in place, and holds what transformers' own would."""

import copy

import pytest
import torch
from transformers.cache_utils import DynamicCache, DynamicLayer, EncoderDecoderCache, StaticCache

from zoo.fast.preallocated_cache import ROOM, GrowingLayer, SourceLayer, let_grow
from zoo.fast.switches import fast_paths
from zoo.testing.generating import assert_same_text, generate
from zoo.testing.subjects import new_subject

OPERATIONS = {
    "reorder": lambda layer: layer.reorder_cache(torch.tensor([1, 1, 0])),
    "stay": lambda layer: layer.reorder_cache(torch.arange(len(layer.keys))),
    "crop": lambda layer: layer.crop(-2),
    "repeat": lambda layer: layer.batch_repeat_interleave(2),
    "select": lambda layer: layer.batch_select_indices(torch.tensor([1, 0])),
    "reset": lambda layer: layer.reset(),
    "offload": lambda layer: (layer.offload(), layer.prefetch()),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@torch.no_grad()
def test_a_layer_holds_what_transformers_layer_does(operation):
    torch.manual_seed(0)
    ours, theirs = GrowingLayer(), DynamicLayer()
    for round_, lengths in enumerate([(5, 1, 1), (1, ROOM + 3, 1, 2)]):
        rows = len(theirs.keys) if round_ and theirs.keys is not None else 3
        for length in lengths:
            keys, values = torch.randn(rows, 2, length, 4), torch.randn(rows, 2, length, 6)
            for one, other in zip(ours.update(keys, values), theirs.update(keys, values), strict=True):
                assert torch.equal(one, other)
            assert ours.get_seq_length() == theirs.get_seq_length()
        OPERATIONS[operation](ours)
        OPERATIONS[operation](theirs)
        if theirs.keys is not None:
            assert torch.equal(ours.keys, theirs.keys) and torch.equal(ours.values, theirs.values)


@torch.no_grad()
def test_a_step_copies_nothing_that_is_there():
    layer, states = GrowingLayer(), torch.randn(1, 2, 1, 4)
    layer.update(states, states)
    before = layer.keys.data_ptr()
    for _ in range(ROOM):
        layer.update(states, states)
    assert layer.keys.data_ptr() == before
    layer.update(states, states)
    assert layer.keys.data_ptr() != before and layer.get_seq_length() == ROOM + 2


@pytest.mark.parametrize("change", [lambda layer: None, OPERATIONS["reorder"]], ids=["as it is", "reordered"])
@torch.no_grad()
def test_branches_of_one_layer_go_their_own_ways(change):
    torch.manual_seed(0)
    layers = GrowingLayer(), DynamicLayer()
    states = torch.randn(3, 2, 4, 4)
    for layer in layers:
        layer.update(states, states)
        change(layer)
    branches = [(layer, copy.copy(layer), copy.copy(layer)) for layer in layers]
    for length in (1, 2):
        for ours, theirs in zip(*branches, strict=True):
            states = torch.randn(3, 2, length, 4)
            for layer in (ours, theirs):
                change(layer)
                layer.update(states, states)
    for ours, theirs in zip(*branches, strict=True):
        assert torch.equal(ours.keys, theirs.keys) and torch.equal(ours.values, theirs.values)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize(("name", "task"), [("gpt2-style", "causal-lm"), ("pre-norm", "seq2seq-lm")])
def test_what_inference_mode_began_is_continued_outside(name, task, mode):
    subject = new_subject(name, task)
    inputs = subject.inputs()
    written = "decoder_input_ids" if task == "seq2seq-lm" else "input_ids"
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache()) if task == "seq2seq-lm" else DynamicCache()
    let_grow(cache, 1)
    pieces = []
    for number, piece in enumerate(inputs[written].split(2, dim=1)):
        with mode() if number % 2 else torch.inference_mode():
            outputs = subject.model(**{**inputs, written: piece}, past_key_values=cache, use_cache=True)
            cache.reorder_cache(torch.tensor([2, 1, 0]))
            cache.reorder_cache(torch.tensor([2, 1, 0]))
        pieces.append(outputs.logits.detach().clone())
    torch.testing.assert_close(torch.cat(pieces, dim=1), subject.run())


@torch.no_grad()
def test_beams_take_the_memory_of_one_layer_more_than_greedy_search():
    """Which is what transformers' own take, for it copies one layer after the other; and room for an eighth."""
    layers, length, final = 6, 400, 410
    cache = DynamicCache()
    let_grow(cache, 1, final)
    states = torch.randn(3, 2, length, 4)
    for layer_idx in range(layers):
        cache.update(states, states, layer_idx)
    for _ in range(3):
        cache.reorder_cache(torch.tensor([1, 1, 0]))
        for layer_idx in range(layers):
            cache.update(states[:, :, :1], states[:, :, :1], layer_idx)
    rooms = [room for layer in cache.layers for room in layer.rooms]
    spares = {room.data_ptr() for layer in cache.layers for room in layer.spare.rooms}
    assert len(spares) == 2 and not spares & {room.data_ptr() for room in rooms}
    assert {room.shape[2] for room in rooms} == {final}
    without_end = GrowingLayer()
    without_end.update(*[torch.randn(1, 1, 4000, 2)] * 2)
    assert without_end.rooms[0].shape[2] == 4500


@torch.no_grad()
def test_the_cache_of_a_generation_is_never_longer_than_its_text():
    subject = new_subject("gpt2-style", "causal-lm")
    output = generate(subject, num_beams=2)
    assert {layer.rooms[0].shape[2] for layer in output.past_key_values.layers} == {output.sequences.shape[1]}


def test_gradients_flow_through_it():
    layer, states = GrowingLayer(), torch.randn(1, 2, 1, 4, requires_grad=True)
    for _ in range(3):
        keys, _ = layer.update(states, states)
    keys.square().sum().backward()
    assert torch.allclose(states.grad, 6 * states)


def test_beams_of_one_source_are_held_once():
    states = torch.randn(2, 2, 1, 3, 2).repeat_interleave(2, dim=1)
    states += torch.arange(2.0).view(1, 2, 1, 1, 1).repeat_interleave(2, dim=1)
    for change, expected in {
        "stay": (lambda layer: layer.reorder_cache(torch.tensor([1, 1, 3, 2])), [0, 2]),
        "swap": (lambda layer: layer.reorder_cache(torch.tensor([2, 3, 0, 1])), [2, 3, 0, 1]),
        "select": (lambda layer: layer.batch_select_indices(torch.tensor([3, 1])), [3, 1]),
    }.values():
        layer = SourceLayer(2)
        layer.update(*states)
        assert len(layer.keys) == 2
        change(layer)
        assert torch.equal(layer.keys, states[0, expected]) and torch.equal(layer.values, states[1, expected])
    layer.batch_repeat_interleave(3)
    layer.spread()
    assert torch.equal(layer.keys, states[0, [3, 3, 3, 1, 1, 1]])


def test_only_what_would_copy_is_replaced():
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    let_grow(cache, 1)
    kinds = [part.layer_class_to_replicate() for part in (cache.self_attention_cache, cache.cross_attention_cache)]
    assert [type(kind) for kind in kinds] == [GrowingLayer, SourceLayer]
    subject = new_subject("llama-style:sliding_window=4", "causal-lm")
    sliding, static = DynamicCache(config=subject.config), StaticCache(subject.config, max_cache_len=8)
    kinds = [[type(layer) for layer in part.layers] for part in (sliding, static)]
    let_grow(sliding, 1)
    let_grow(static, 1)
    let_grow(None, 1)
    assert [[type(layer) for layer in part.layers] for part in (sliding, static)] == kinds


@pytest.mark.parametrize(
    ("name", "task"),
    [("gpt2-style", "causal-lm"), ("d2l-style", "seq2seq-lm"), ("odom-style+softmax-over-the-batch", "seq2seq-lm")],
)
@pytest.mark.parametrize("settings", [{}, {"num_beams": 3, "num_return_sequences": 2}], ids=["greedy", "beams"])
def test_generation_is_the_same_with_transformers_own(name, task, settings):
    subject = new_subject(name, task)
    ours = generate(subject, **settings)
    with fast_paths(cache_room="never"):
        theirs = generate(subject, **settings)
    assert_same_text(ours, theirs, "a cache that grows in place = one that is copied")
    caches = [
        getattr(output.past_key_values, "self_attention_cache", output.past_key_values) for output in (ours, theirs)
    ]
    assert [type(cache.layers[0]) for cache in caches] == [GrowingLayer, DynamicLayer]
