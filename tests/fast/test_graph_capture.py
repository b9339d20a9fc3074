"""Captured graphs: the same operations on other values and lengths, or none where others would be chosen."""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from zoo.fast.graph_capture import SHORTEST, CapturedGraph, capture, compile_graph, keeps_order

SCALE = torch.nn.Parameter(torch.tensor([2.0, -1.0, 0.5]))


def write_and_sum(rooms: Tensor, new: Tensor, seen: int) -> tuple[Tensor, Tensor]:
    """Append to the cache and return its weighted sum; long texts take another path."""
    rooms.narrow(1, seen, 1).copy_(new)
    states = rooms.narrow(1, 0, seen + 1)
    total = (states * SCALE).sum(1) if seen < 20 else states.mean(1)
    return total, states


def capture_of(seen: int, room: int) -> CapturedGraph:
    inputs = torch.randn(2, room, 3), torch.randn(2, 1, 3)
    return capture(
        lambda rooms, new, seen, room: write_and_sum(rooms, new, seen),
        inputs,
        [(1, "room"), None],
        {"seen": seen, "room": room},
    )


@given(first=st.tuples(st.integers(2, 30), st.integers(1, 9)), second=st.tuples(st.integers(1, 30), st.integers(0, 9)))
@settings(max_examples=25, deadline=None, phases=(Phase.generate,))  # searching for a smaller case takes minutes
def test_a_replay_equals_the_function_wherever_the_capture_fits(first, second):
    (seen, more), (other_seen, other_more) = first, second
    captured = capture_of(seen, seen + more)
    length, room = other_seen, other_seen + other_more
    same_way = (seen < 20) == (length < 20)
    if captured.fits(length, room):
        assert same_way and room > length
        rooms, new = torch.randn(2, room, 3), torch.randn(2, 1, 3)
        expected = write_and_sum(rooms.clone(), new, length)
        found = compile_graph(captured.graph)(rooms, new, length, room, *captured.constants)
        for one, other in zip(found, expected, strict=True):
            assert torch.equal(one, other)
    elif same_way and length >= SHORTEST:
        assert room - length <= 1 or more == 1  # where the view of what is written is the whole room


def test_parameters_are_looked_up_when_they_are_needed():
    captured = capture_of(5, 9)
    assert len(captured.constants) == 1 and captured.constants[0] is SCALE
    run = compile_graph(captured.graph)
    rooms, new = torch.randn(2, 9, 3), torch.randn(2, 1, 3)
    before = SCALE.detach().clone()
    try:
        with torch.no_grad():
            SCALE.mul_(3)
            expected = write_and_sum(rooms.clone(), new, 5)[0]
            assert torch.equal(run(rooms, new, 5, 9, *captured.constants)[0], expected)
    finally:
        SCALE.data.copy_(before)


def test_what_looks_at_values_is_not_captured():
    def shift(states: Tensor, length: int) -> tuple[Tensor]:
        return (states + 1 if bool((states > 0).all()) else states,)

    with pytest.raises(Exception, match=r"(?i)data.dependent|values"):
        capture(shift, [torch.randn(3, 4)], [(1, "length")], {"length": 4})


def test_capturing_leaves_nothing_switched():
    inference, gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    capture_of(5, 9)
    assert (torch.is_inference_mode_enabled(), torch.is_grad_enabled()) == (inference, gradients)
    assert type(torch.ones(1)) is Tensor
    with torch.inference_mode():
        assert capture_of(5, 9).fits(6, 9)
        assert torch.is_inference_mode_enabled()


def heads_of(states: Tensor) -> Tensor:
    """Split into heads, look at them and put them together again."""
    heads = states.view(*states.shape[:2], 4, 3).transpose(1, 2)
    return (heads * SCALE).transpose(1, 2).reshape(*states.shape)


@pytest.mark.parametrize(("tokens", "swaps"), [(1, 0), (5, 2)], ids=["of one token", "of several"])
def test_heads_move_only_where_their_order_changes(tokens, swaps):
    states = torch.randn(2, tokens, 12)
    captured = capture(lambda states, length: (heads_of(states) + length,), [states], [None], {"length": 7})
    assert len(captured.graph.find_nodes(op="call_function", target=Tensor.transpose)) == swaps
    (found,) = compile_graph(captured.graph)(states, 7, *captured.constants)
    assert torch.equal(found, heads_of(states) + 7)


@given(shape=st.lists(st.integers(1, 3), min_size=2, max_size=5), places=st.data())
def test_order_is_kept_where_nothing_moves_past_another(shape, places):
    first, second = (places.draw(st.integers(-len(shape), len(shape) - 1)) for _ in range(2))
    numbers = torch.arange(torch.Size(shape).numel())
    moved = numbers.view(shape).transpose(first, second).flatten()
    assert keeps_order(shape, first, second) == torch.equal(moved, numbers)
