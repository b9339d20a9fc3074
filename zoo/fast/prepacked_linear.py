"""Prepacked weights: a library's layout of linear layers for the few rows of a decode step, on a CPU.

Every decode step multiplies matrices by one to some dozens of rows. MKL takes up to five times as long with weights in
plain layout as it or oneDNN with weights prepacked for that number of rows. For replayed steps the layers of a captured
graph are replaced; for a step of the model itself the layers' `forward` is, as long as the step lasts.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from threading import Lock, get_ident
from typing import Any

import psutil
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from .graph_capture import CapturedGraph, Program, compile_graph, copy_graph
from .huge_pages import HugePages
from .matmul import EXACT, deviation, fastest_times

try:
    import xxhash
except ModuleNotFoundError:  # as where a model's code is loaded without the zoo
    xxhash = None  # type: ignore[assignment]

PAYS = 1.25
"""Speedup from which weights are prepacked. Prepacking takes as long as running the layer ten to twenty times; at this
speedup a hundred steps make up for it."""

SHARE = 1 / 8  # Share of the machine's memory that prepacked weights may take
LARGEST = 1 << 21  # Largest number of weights for which layers are measured; larger ones behave alike

SMALLEST = 1 << 16
"""Least number of weights of a layer that is prepacked for steps of the model itself: smaller ones stay in caches."""

CACHES = 1 << 26
"""Bytes that no cache holds after they were read, about; a model with fewer is read from caches in every step."""

BLOCK = 16  # Outputs of a block of weights: a register of 16 numbers, so that a block is read in order

SAMPLES = 16
"""Number of values of a weight compared in every step, because PyTorch does not count writes through `.data`."""


@dataclass(frozen=True)
class Trial:
    """Measurement of linear layers on prepacked weights."""

    gain: float  # Speedup over the plain layer
    deviation: float  # Difference from the exact result, relative to the largest value

    @property
    def pays(self) -> bool:
        """Whether the speedup is reached at the same exactness."""
        return self.gain >= PAYS and self.deviation <= EXACT


Packed = Callable[[Tensor, Tensor, Tensor, "Tensor | None", int], Tensor]
"""Multiplies states by prepacked weights, given the weights themselves, the bias or None, and the number of rows."""

Prepack = Callable[[Tensor, int, HugePages], Tensor]
"""Prepacks weights for a number of rows, in huge pages where the layout is PyTorch's own."""


def mkl_linear(states: Tensor, prepacked: Tensor, weight: Tensor, bias: Tensor | None, rows: int) -> Tensor:
    """Multiply by weights that MKL prepacked for a number of rows: (..., in_features) -> (..., out_features)."""
    return torch.ops.mkl._mkl_linear(states, prepacked, weight, bias, rows)


def onednn_linear(states: Tensor, prepacked: Tensor, weight: Tensor, bias: Tensor | None, rows: int) -> Tensor:
    """Multiply by weights that oneDNN prepacked: (..., in_features) -> (..., out_features)."""
    return torch.ops.mkldnn._linear_pointwise(states, prepacked, bias, "none", [], "")


def transposed_linear(states: Tensor, prepacked: Tensor, weight: Tensor, bias: Tensor | None, rows: int) -> Tensor:
    """Multiply by weights that lie transposed in memory: (..., in_features) -> (..., out_features)."""
    return F.linear(states, prepacked, bias)


def blocked_linear(states: Tensor, prepacked: Tensor, weight: Tensor, bias: Tensor | None, rows: int) -> Tensor:
    """Multiply by blocks of weights, each transposed: (..., in_features) -> (..., out_features)."""
    blocks, in_features, _ = prepacked.shape
    outputs = torch.bmm(states.reshape(1, rows, in_features).expand(blocks, -1, -1), prepacked)
    if rows > 1:
        outputs = outputs.transpose(0, 1)
    outputs = outputs.reshape(*states.shape[:-1], -1)
    if outputs.shape[-1] > weight.shape[0]:
        outputs = outputs[..., : weight.shape[0]]
    return outputs if bias is None else outputs + bias


def in_blocks(weight: Tensor, rows: int, pages: HugePages) -> Tensor:
    """Weights for [`blocked_linear`][], the last block filled up with zeros: (blocks, in_features, BLOCK)."""
    missing = -len(weight) % BLOCK
    whole = F.pad(weight, (0, 0, 0, missing)) if missing else weight
    return pages.copy(whole.unflatten(0, (-1, BLOCK)).transpose(1, 2))


def libraries() -> dict[Packed, Prepack]:
    """The linear layers of this build of PyTorch on prepacked weights, and what prepacks for each."""
    found: dict[Packed, Prepack] = {
        transposed_linear: lambda weight, rows, pages: pages.copy(weight.T).T,
        blocked_linear: in_blocks,
    }
    if torch.backends.mkl.is_available() and hasattr(torch.ops.mkl, "_mkl_linear"):
        found[mkl_linear] = lambda weight, rows, pages: torch.ops.mkl._mkl_reorder_linear_weight(weight, rows)
    if torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        found[onednn_linear] = lambda weight, rows, pages: torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    return found


@dataclass(frozen=True)
class JointLinear:
    """Linear layers of a captured graph with the same input, merged."""

    nodes: tuple[fx.Node, ...]
    weights: tuple[int, ...]  # Their weights among the graph's constants
    biases: tuple[int, ...]  # Their biases; none, or as many
    rows: int
    linear: Packed | None = None  # The library's function

    def widths(self, constants: Sequence[Tensor]) -> tuple[int, ...]:
        return tuple(constants[place].shape[0] for place in self.weights)

    def prepack(self, constants: Sequence[Tensor], pages: HugePages) -> tuple[Tensor, ...]:
        first, *more = (constants[place].detach() for place in self.weights)
        weights = torch.cat([first, *more]) if more else first.contiguous()
        prepacked = libraries()[self.linear or transposed_linear](weights, self.rows, pages)
        biases = [constants[place].detach() for place in self.biases]
        return (prepacked, weights.new_empty(1).expand_as(weights), *([torch.cat(biases)] if biases else []))


@dataclass(frozen=True)
class Prepacking:
    """A captured graph with linear layers on prepacked weights."""

    program: Program  # Takes all inputs, all constants of the graph, then the prepacked weights
    layers: tuple[JointLinear, ...]  # Layers on prepacked weights

    def prepack(self, constants: Sequence[Tensor]) -> PrepackedWeights:
        pages = HugePages()
        tensors = tuple(tensor for layer in self.layers for tensor in layer.prepack(constants, pages))
        places = dict.fromkeys(place for layer in self.layers for place in (*layer.weights, *layer.biases))
        return PrepackedWeights(self.program, tensors, Sources([constants[place] for place in places]))


class Sources:
    """Sources of prepacked copies."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors
        self._samples = [sample(tensor) for tensor in tensors]
        self._versions = self._current_versions()
        self._values = torch.cat(self._samples)

    def _current_versions(self) -> list[tuple[int, int]]:
        return [(tensor.data_ptr(), tensor._version) for tensor in self._tensors]

    def are_current(self) -> bool:
        """Whether version counters, addresses and sampled values, which show writes through `.data`, are unchanged."""
        return self._current_versions() == self._versions and torch.equal(torch.cat(self._samples), self._values)

    def digest(self) -> list[int] | None:
        """Hashes of all values, to find any write between two generations; None without xxhash, or after a write."""
        values = (tensor.detach().contiguous().numpy().data for tensor in self._tensors)
        return list(map(xxhash.xxh3_64_intdigest, values)) if xxhash is not None and self.are_current() else None


@dataclass(frozen=True)
class PrepackedWeights:
    """Prepacked copies of a captured graph's weights."""

    program: Program  # Takes all inputs and all constants of the graph, then the tensors
    tensors: tuple[Tensor, ...]
    sources: Sources


def sample(tensor: Tensor) -> Tensor:
    """A view of at most SAMPLES values, evenly spread over a tensor."""
    size = min(SAMPLES, tensor.numel())
    return tensor.detach().as_strided((size,), (max(1, (tensor.numel() - 1) // SAMPLES),))


def prepacking_of(capture: CapturedGraph, *, everywhere: bool = False) -> Prepacking | None:
    """Find the linear layers that are faster with prepacked weights, by measuring each size."""
    constants = capture.constants
    graph = copy_graph(capture.graph)
    joint, layers = joint_layers(graph, constants), []
    options = {"everywhere": everywhere, "cold": exceed_caches([constants[i] for one in joint for i in one.weights])}
    for layer in joint:
        in_features = constants[layer.weights[0]].shape[1]
        linear = fastest_linear(layer.rows, layer.widths(constants), in_features, **options)
        layers += [] if linear is None else [replace(layer, linear=linear)]
    if not layers or sum(constants[place].nbytes for layer in layers for place in layer.weights) > memory_for_weights():
        return None
    for layer in layers:
        replace_layer(graph, layer, constants)
    return Prepacking(compile_graph(graph), tuple(layers))


def joint_layers(graph: fx.Graph, constants: Sequence[Any]) -> list[JointLinear]:
    """Find the float32 linear layers of a graph with a known number of rows and tracked weights, merged by input."""
    inputs = graph.find_nodes(op="placeholder")
    places = {node: place for place, node in enumerate(inputs[len(inputs) - len(constants) :])}
    groups: dict[Any, list[tuple[fx.Node, Any, Any]]] = {}
    for node in graph.find_nodes(op="call_function", target=F.linear):
        states, weight, bias = (*node.args, *node.kwargs.values(), None)[:3]
        *rows, _ = states.meta["val"].shape
        tensors = [constants[places[one]] for one in (weight, bias) if one in places]
        is_constant = len(tensors) == 1 + (bias is not None)
        if is_constant and all(map(can_be_watched, tensors)) and all(type(size) is int for size in rows):
            groups.setdefault((states, math.prod(rows), bias is None), []).append((node, weight, bias))
    return [
        JointLinear(
            tuple(node for node, _, _ in group),
            tuple(places[weight] for _, weight, _ in group),
            () if has_no_bias else tuple(places[bias] for _, _, bias in group),
            rows,
        )
        for (_, rows, has_no_bias), group in groups.items()
    ]


def can_be_watched(tensor: Tensor) -> bool:
    """Whether a weight is float32, and PyTorch counts writes to it."""
    return tensor.dtype == torch.float32 and not tensor.is_inference()


def replace_layer(graph: fx.Graph, layer: JointLinear, constants: Sequence[Tensor]) -> None:
    """Replace linear layers by prepacked ones in place; results of `prepack` become the graph's last inputs."""
    inputs = graph.find_nodes(op="placeholder")
    for place in range(len(inputs), len(inputs) + (3 if layer.biases else 2)):
        with graph.inserting_after(inputs[-1]):
            inputs.append(graph.placeholder(f"prepacked_{place}"))
    packed, shape, bias = inputs[-3:] if layer.biases else (*inputs[-2:], None)
    first = layer.nodes[0]
    with graph.inserting_before(first):
        joint = graph.call_function(layer.linear or transposed_linear, (first.args[0], packed, shape, bias, layer.rows))
        widths = list(layer.widths(constants))
        parts = [joint]
        if len(widths) > 1:
            split = graph.call_function(torch.split, (joint, widths, -1))
            parts = [graph.call_function(operator.getitem, (split, place)) for place in range(len(widths))]
    for node, part in zip(layer.nodes, parts, strict=True):
        node.replace_all_uses_with(part)
        graph.erase_node(node)


replacing_methods = Lock()
"""Held while methods of layers are replaced, so that no other thread takes them for the model's own."""


class PrepackedLayers:
    """The linear layers of a model on weights prepacked for some rows, each at its first call."""

    def __init__(self, model: nn.Module, rows: int, *, everywhere: bool = False) -> None:
        self.room = memory_for_weights()
        self.pages = HugePages()
        self.thread = 0  # Identifier of the one in which the layers are installed
        self.sources: Sources | None = None
        self.weights: list[Tensor] = []  # Prepacked ones, which `sources` does not know before the next step
        smallest = 0 if everywhere else SMALLEST
        layers = [layer for layer in model.modules() if type(layer) is nn.Linear and can_be_watched(layer.weight)]
        self.options = {"everywhere": everywhere, "cold": exceed_caches([layer.weight for layer in layers])}
        large = [layer for layer in layers if layer.weight.numel() >= smallest]
        self.forwards = {layer: PrepackedForward(self, layer, rows) for layer in large}

    def are_current(self) -> bool:
        """Whether no weight was replaced, or written to since it was prepacked."""
        if not all(layer.weight is forward.weight for layer, forward in self.forwards.items()):
            return False
        if self.sources is None and self.weights:
            self.sources = Sources(self.weights)
        return self.sources is None or self.sources.are_current()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Run the layers on prepacked weights in this context and thread, unless another thread has some installed."""
        if not replacing_methods.acquire(blocking=False):
            yield
            return
        self.thread = get_ident()
        try:
            for layer, forward in self.forwards.items():
                vars(layer)["forward"] = forward
            yield
        finally:
            for layer in self.forwards:
                vars(layer).pop("forward", None)
            replacing_methods.release()


class PrepackedForward:
    """The forward of a linear layer, on weights that it prepacks at its first call if that is faster."""

    def __init__(self, layers: PrepackedLayers, layer: nn.Linear, rows: int) -> None:
        self.layers = layers
        self.weight, self.bias = layer.weight, layer.bias
        self.rows = rows
        self.linear: Packed | None = None
        self.prepacked: Tensor | None = None

    def __call__(self, states: Tensor) -> Tensor:
        if get_ident() != self.layers.thread or states.shape[:-1].numel() != self.rows:
            return F.linear(states, self.weight, self.bias)
        if self.prepacked is None:
            self.prepack()
        if self.linear is None or self.prepacked is None:
            return F.linear(states, self.weight, self.bias)
        return self.linear(states, self.prepacked, self.weight, self.bias, self.rows)

    def prepack(self) -> None:
        out_features, in_features = self.weight.shape
        self.prepacked, layers = self.weight, self.layers
        linear = fastest_linear(self.rows, (out_features,), in_features, **layers.options)
        if linear is not None and self.weight.nbytes <= layers.room:
            weight = self.weight.detach().contiguous()
            self.linear, self.prepacked = linear, libraries()[linear](weight, self.rows, layers.pages)
            layers.room -= self.weight.nbytes
            layers.weights.append(self.weight)
            layers.sources = None


def try_rows(rows: int, width: int = 1024) -> Trial:
    """Measure a layer from this width to four times that with a number of rows, once in a process."""
    trials = _try_prepacked(rows, (4 * width,), width, torch.get_num_threads(), True)
    return max(trials.values(), key=lambda trial: trial.gain)


def exceed_caches(weights: Sequence[Tensor]) -> bool:
    """Whether weights that are read one after the other come from memory every time."""
    return sum(weight.nbytes for weight in weights) > CACHES


def fastest_linear(
    rows: int, widths: tuple[int, ...], in_features: int, *, everywhere: bool = False, cold: bool = False
) -> Packed | None:
    """The fastest function for linear layers of one input, None if the plain one is; `everywhere` a slower one too."""
    largest = max(1, LARGEST // (in_features * len(widths)))
    sizes = (tuple(min(width, largest) for width in widths), in_features)
    trials = _try_prepacked(rows, *sizes, torch.get_num_threads(), cold)
    found = [linear for linear, trial in trials.items() if everywhere or trial.pays]
    return max(found, key=lambda linear: trials[linear].gain, default=None)


@cache
def _try_prepacked(
    rows: int, widths: tuple[int, ...], in_features: int, threads: int, cold: bool = False
) -> dict[Packed, Trial]:
    generator = torch.Generator().manual_seed(0)
    states, weights = (torch.randn(size, in_features, generator=generator) for size in (rows, sum(widths)))
    exact = states.double() @ weights.double().T
    found = libraries()

    def ways() -> list[Callable[[], Any]]:
        """The plain way and each library's, all on copies of the weights."""
        pages, separate = HugePages(), weights.clone().split(list(widths))
        packed = [(linear, prepack(weights, rows, pages)) for linear, prepack in found.items()]
        return [
            lambda: [F.linear(states, weight) for weight in separate],
            *(partial(linear, states, one, weights, None, rows) for linear, one in packed),
        ]

    runs = ways()
    before: list[Callable[[], object]] | None = None
    if cold:  # without the weights in caches, but with the code
        table = torch.ones(CACHES // 4)
        before = [partial(lambda run: (table.sum(), run()), run) for run in ways()]
    deviations = [deviation(run(), exact) for run in runs[1:]]
    usual, *times = fastest_times(runs, before)
    return {linear: Trial(usual / time, one) for linear, time, one in zip(found, times, deviations, strict=True)}


def memory_for_weights() -> float:
    return SHARE * psutil.virtual_memory().total
