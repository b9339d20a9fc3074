"""Products with prepacked weights, and copies of weights in huge pages."""

import mmap
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

import zoo
from zoo.fast import huge_pages, prepacked_linear
from zoo.fast.captured_steps import captured_steps_of
from zoo.fast.graph_capture import CapturedGraph, capture, compile_graph
from zoo.fast.huge_pages import ALIGNMENT, HugePages
from zoo.fast.matmul import EXACT
from zoo.fast.prepacked_linear import PrepackedLayers, Prepacking, libraries, prepacking_of


@pytest.fixture(params=libraries(), ids=lambda linear: linear.__name__)
def only_library(request, monkeypatch):
    """One library alone, so that trials are not those of another."""
    prepack = libraries()[request.param]
    monkeypatch.setattr(prepacked_linear, "libraries", lambda: {request.param: prepack})
    prepacked_linear._try_prepacked.cache_clear()
    yield
    prepacked_linear._try_prepacked.cache_clear()


class Sublayer(nn.Module):
    """Three projections of one input, one of another."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(16, width, bias=bias) for width in (8, 24, 8))
        self.last = nn.Linear(8, 16, bias=bias)

    def forward(self, states: Tensor) -> Tensor:
        mixed = self.first(states).view(*states.shape[:-1], 2, 4) * self.second(states)[..., :1, None]
        return self.last(mixed.flatten(-2) + self.third(states))


def prepacked(sublayer: nn.Module, states: Tensor) -> tuple[CapturedGraph, Prepacking | None]:
    captured = capture(lambda states, length: (sublayer(states),), [states], [None], {"length": 5})
    return captured, prepacking_of(captured, everywhere=True)


@pytest.mark.parametrize("rows", [(1, 1), (8, 1), (3, 2)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.usefixtures("only_library")
@torch.no_grad()
def test_products_are_the_same(rows, bias):
    torch.manual_seed(0)
    sublayer, states = Sublayer(bias), torch.randn(*rows, 16)
    captured, prepacking = prepacked(sublayer, states)
    assert [len(product.nodes) for product in prepacking.layers] == [3, 1]
    assert {product.rows for product in prepacking.layers} == {rows[0] * rows[1]}
    weights = prepacking.prepack(captured.constants).tensors
    (found,) = prepacking.program(states, 5, *captured.constants, *weights)
    torch.testing.assert_close(found, sublayer(states), rtol=EXACT, atol=EXACT)
    sublayer.second.weight.mul_(2)
    (unchanged,) = prepacking.program(states, 5, *captured.constants, *weights)
    assert torch.equal(unchanged, found), "prepacked weights were not read"
    (plain,) = compile_graph(captured.graph)(states, 5, *captured.constants)
    torch.testing.assert_close(plain, sublayer(states), rtol=0, atol=0)


@torch.no_grad()
def test_only_float32_weights_are_prepacked():
    sublayer = Sublayer(bias=True).double()
    assert prepacked(sublayer, torch.randn(2, 1, 16, dtype=torch.float64))[1] is None


@torch.no_grad()
def test_nothing_is_prepacked_without_library_or_memory(monkeypatch):
    captured, prepacking = prepacked(Sublayer(bias=True), torch.randn(2, 1, 16))
    assert prepacking is not None
    with monkeypatch.context() as patch:
        patch.setattr(prepacked_linear, "memory_for_weights", lambda: 1000)
        assert prepacking_of(captured, everywhere=True) is None
    monkeypatch.setattr(prepacked_linear, "libraries", dict)
    prepacked_linear._try_prepacked.cache_clear()
    assert prepacking_of(captured, everywhere=True) is None
    prepacked_linear._try_prepacked.cache_clear()


def test_trials_report_speed_and_exactness():
    trials = prepacked_linear._try_prepacked(4, (24, 8), 16, torch.get_num_threads())
    assert trials.keys() == libraries().keys()
    for trial in trials.values():
        assert trial.gain > 0 and 0 <= trial.deviation < EXACT
        assert trial.pays == (trial.gain >= prepacked_linear.PAYS)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.usefixtures("only_library")
@torch.no_grad()
def test_layers_run_on_prepacked_weights_in_a_context(bias):
    torch.manual_seed(0)
    sublayer, states, more = Sublayer(bias), torch.randn(2, 1, 16), torch.randn(3, 1, 16)
    expected, of_more = sublayer(states), sublayer(more)
    layers = PrepackedLayers(sublayer, 2, everywhere=True)
    with layers.installed():
        torch.testing.assert_close(sublayer(states), expected, rtol=EXACT, atol=EXACT)
        assert torch.equal(sublayer(more), of_more), "other rows read plain weights"
    assert len(layers.weights) == 4 and layers.are_current()
    assert not any("forward" in vars(module) for module in sublayer.modules())
    assert torch.equal(sublayer(states), expected)
    sublayer.second.weight.data.mul_(2)
    assert not layers.are_current(), "a write through .data"


@torch.no_grad()
def test_another_thread_keeps_the_plain_weights():
    """Also one that captures: prepacked weights would become constants of its graph, or fake ones be kept."""
    sublayer, states = Sublayer(bias=True), torch.randn(2, 1, 16)
    expected, layers = sublayer(states), PrepackedLayers(sublayer, 2, everywhere=True)
    with ThreadPoolExecutor(1) as thread, layers.installed():
        assert torch.equal(thread.submit(torch.no_grad()(sublayer), states).result(), expected)
        assert layers.weights == []
        sublayer(states)
        other = PrepackedLayers(sublayer, 2, everywhere=True)

        def use_others() -> None:
            with other.installed():
                sublayer(states)

        thread.submit(use_others).result()
        assert other.weights == [] and "forward" in vars(sublayer.first), "one thread at a time"
    assert len(layers.weights) == 4


def test_a_model_is_guarded_as_it_is_without_the_layers_of_another_thread():
    model = zoo.build("gpt2-style", hidden_size=16, num_attention_heads=2, num_hidden_layers=1, vocab_size=20).eval()
    with ThreadPoolExecutor(1) as thread:
        with PrepackedLayers(model, 2, everywhere=True).installed():
            captured = thread.submit(captured_steps_of, model)
        assert captured.result().guards.hold()


@torch.no_grad()
def test_layers_are_prepacked_where_they_run_and_there_is_memory(monkeypatch):
    sublayer, states = Sublayer(bias=True), torch.randn(2, 1, 16)
    assert PrepackedLayers(sublayer, 2).forwards == {}, "small ones"
    layers = PrepackedLayers(sublayer, 2, everywhere=True)
    with layers.installed():
        sublayer.first(states)
    assert [id(weight) for weight in layers.weights] == [id(sublayer.first.weight)]
    sublayer.second.weight = nn.Parameter(sublayer.second.weight.clone())
    assert not layers.are_current(), "a replaced weight"
    monkeypatch.setattr(prepacked_linear, "memory_for_weights", lambda: 1000)
    layers = PrepackedLayers(sublayer, 2, everywhere=True)
    with layers.installed():
        assert torch.equal(sublayer(states), sublayer(states))
    assert len(layers.weights) == 1


@pytest.mark.parametrize("asks", [True, False])
def test_copies_are_equal_and_do_not_overlap(asks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not asks:  # as on systems that have none
        monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    monkeypatch.setattr(huge_pages, "CHUNK", 4096)
    pages = HugePages()
    weights = [torch.randn(3, 5), torch.randn(7, 4).T, torch.randn(40, 50), torch.randn(6, dtype=torch.float64)]
    copies = [pages.copy(weight) for weight in weights]
    del pages
    for weight, copy in zip(weights, copies, strict=True):
        assert torch.equal(copy, weight) and copy.dtype == weight.dtype
        assert copy.is_contiguous() and copy.data_ptr() % ALIGNMENT == 0


def test_reserved_memory_is_taken_as_it_is_written() -> None:
    resident = "/proc/self/statm"

    def pages_of_process() -> int:
        with open(resident, encoding="ascii") as file:
            return int(file.read().split()[1])

    try:
        before = pages_of_process()
    except OSError:
        pytest.skip("not Linux")
    kept = HugePages()
    copies = [kept.copy(torch.ones(1000)) for _ in range(10)]
    assert len(copies) == 10
    assert (pages_of_process() - before) * mmap.PAGESIZE < huge_pages.CHUNK // 4
