"""Graph capture: run a function's operations without the Python that chose them.

In a decode step each operation takes PyTorch microseconds, and as long again goes into modules, keyword arguments and
choices that are the same in every step. CUDA graphs remove that on a GPU; this module does so on a CPU, with lengths as
variables.

A `TorchFunctionMode`, local to the capturing thread, records operations. `make_fx` and `torch.export` would do the
same, but set a global flag and patch `nn.Module` for the whole process, which breaks compiled models in other threads.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import sympy
import torch
from torch import Tensor, fx, nn
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

VIEWS = (Tensor.view, Tensor.reshape)


def fold_transposes(graph: fx.Graph) -> None:
    """Fold transpositions that keep the order of all elements, as those of a single token, into adjacent views."""
    for node in graph.find_nodes(op="call_function", target=Tensor.transpose):
        source, shape = node.args[0], node.meta["val"].shape
        if not all(type(size) is int for size in shape) or not keeps_order(source.meta["val"].shape, *node.args[1:]):
            continue
        if source.target in VIEWS:
            with graph.inserting_before(node):
                view = graph.call_function(torch.reshape, (source.args[0], tuple(shape)))
            view.meta = node.meta
            node.replace_all_uses_with(view)
        else:
            for user in list(node.users):
                if user.target in VIEWS:
                    user.target = Tensor.reshape
                    user.replace_input_with(node, source)


def keeps_order(shape: Sequence[int], first: int, second: int) -> bool:
    """Whether elements keep their order when two dimensions are swapped: only dimensions of size 1 move past others."""
    dimensions = list(range(len(shape)))
    moved = dimensions.copy()
    moved[first], moved[second] = moved[second], moved[first]
    return [place for place in dimensions if shape[place] != 1] == [place for place in moved if shape[place] != 1]


Program = Callable[..., tuple[Tensor, ...]]

SHORTEST = 2  # Smallest length for which a captured graph holds: for lengths 0 and 1 other operations are chosen

PLAIN = (bool, int, float, str, slice, type(...), torch.dtype, torch.device, torch.layout, torch.memory_format)
"""Types of constant arguments that the generated program can contain."""

QUICKER: dict[Any, Callable[..., Any]] = {}
"""Equivalent operations with less Python overhead than the captured function."""


def grouped_mm_shape(rows: Tensor, weights: Tensor, **kwargs: Any) -> Tensor:
    """Shape and dtype of a product of rows, sorted by group, with a matrix for each group."""
    return rows.new_empty(rows.shape[0], weights.shape[-1])


STAND_INS: dict[Any, Callable[..., Any]] = {
    getattr(place, name): grouped_mm_shape
    for place, name in ((nn.functional, "grouped_mm"), (torch, "_grouped_mm"))
    if hasattr(place, name)
}
"""Replacements on fake tensors for operations with a fake kernel for bfloat16 alone."""


@dataclass(frozen=True)
class CapturedGraph:
    """Operations of a function, to be run on other values and other lengths."""

    graph: fx.Graph  # The operations, on placeholders for all inputs and then for all constants
    constants: tuple[Tensor, ...]
    holds: Callable[..., bool]  # Whether the same operations would be chosen for such lengths, in the given order

    def fits(self, *lengths: int) -> bool:
        """Whether the captured operations hold for these lengths, in the order in which they were given."""
        return min(lengths) >= SHORTEST and bool(self.holds(*lengths))


def copy_graph(graph: fx.Graph) -> fx.Graph:
    copy = fx.Graph()
    copy.output(copy.graph_copy(graph, {}))
    return copy


def compile_graph(graph: fx.Graph) -> Program:
    graph = copy_graph(graph)
    for node in graph.nodes:
        if node.op == "call_function":
            node.target = QUICKER.get(node.target, node.target)
    return fx.GraphModule(nn.Module(), graph).forward


def capture(
    function: Callable[..., tuple[Tensor, ...]],
    tensors: Sequence[Tensor],
    dimensions: Sequence[tuple[int, str] | None],
    lengths: dict[str, int],
) -> CapturedGraph:
    """Capture a function by running it on fake tensors; raises any exception if it cannot be captured.

    Args:
        function: Takes the tensors, then all lengths. It must not read values, and may change in place only its inputs.
        tensors: Example inputs; only shapes and dtypes matter.
        dimensions: For every tensor the dimension that is a length, and its name; None if its shape is fixed.
        lengths: Numbers that may differ in every run, by name.
    """
    shapes = ShapeEnv(duck_shape=False)  # lengths that are equal by chance stay two symbols
    fake = FakeTensorMode(shape_env=shapes, allow_non_fake_inputs=True)
    fake.cache_enabled = False  # it is global, and compares int8 weights, which cannot be compared
    with torch.inference_mode(False), torch.no_grad():
        symbolic = {name: symbolic_length(fake, name, length) for name, length in lengths.items()}
        symbols = [length.node.expr for length in symbolic.values()]  # before any of them is replaced by another
        with fake:
            inputs = [fake_like(*pair, symbolic) for pair in zip(tensors, dimensions, strict=True)]
            with CaptureMode(inputs, symbolic) as mode:
                outputs = function(*inputs, *symbolic.values())
        mode.graph.output(tuple(mode.argument(output) for output in outputs))
    condition = sympy.And(*(guard.expr for guard in shapes.guards))
    if not condition.free_symbols <= set(symbols):
        raise NotImplementedError("what is computed depends on values")
    fold_transposes(mode.graph)
    for node in reversed(mode.graph.nodes):  # without users and side effects
        if node.op == "call_function" and not node.users and not node.meta.get("writes"):
            mode.graph.erase_node(node)
    holds = sympy.lambdify(symbols, condition, modules="math")
    return CapturedGraph(mode.graph, tuple(mode.constants), holds)


class CaptureMode(TorchFunctionMode):
    """Records every PyTorch function that is called, in a graph."""

    def __init__(self, inputs: Sequence[Tensor], lengths: Mapping[str, torch.SymInt]) -> None:
        super().__init__()
        self.graph = fx.Graph()
        self.constants: list[Any] = []
        self.nodes: dict[int, fx.Node] = {}
        self.kept: list[Any] = []  # keeps tensors alive: their ids are keys of `nodes`
        self.numbers: dict[sympy.Expr, Any] = {}
        for place, tensor in enumerate(inputs):
            self.keep(tensor, self.graph.placeholder(f"input_{place}"))
        for name, length in lengths.items():
            self.last_placeholder = self.graph.placeholder(name)
            self.numbers[length.node.expr] = fx.Proxy(self.last_placeholder)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call a function, and record it if it creates or changes tensors."""
        kwargs = kwargs or {}
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, FakeTensor)]
        versions = [tensor._version for tensor in tensors]
        result = STAND_INS.get(func, func)(*args, **kwargs)
        writes = versions != [tensor._version for tensor in tensors]
        if writes or any(isinstance(one, Tensor) for one in tree_leaves(result)):
            if getattr(func, "__name__", None) == "__get__":  # of a property, as `mT` is
                func, args = getattr, (*args, func.__self__.__name__)
            node = self.graph.call_function(func, *map(self.arguments, (args, kwargs)))
            node.meta["writes"] = writes
            self.keep(result, node)
        return result

    def keep(self, result: Any, node: fx.Node) -> None:
        """Record which node computes a tensor, or each tensor of a tuple."""
        node.meta["val"] = result
        if isinstance(result, Tensor):
            self.kept.append(result)
            self.nodes[id(result)] = node
        elif isinstance(result, (tuple, list)):
            for place, one in enumerate(result):
                if isinstance(one, (Tensor, tuple, list)):
                    self.keep(one, self.graph.call_function(operator.getitem, (node, place)))

    def arguments(self, given: Any) -> Any:
        """Replace tensors and lengths, however deep they are nested, by their nodes."""
        return fx.node.map_aggregate(given, self.argument)

    def argument(self, value: Any) -> Any:
        """Node of a value; a constant is returned unchanged, other types raise NotImplementedError."""
        if isinstance(value, (Tensor, torch.ScriptObject)):
            return self.nodes.get(id(value)) or self.constant(value)
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            expression = value.node.expr
            if expression not in self.numbers:
                self.numbers[expression] = sympy_interp(PythonReferenceAnalysis, self.numbers, expression)
            number = self.numbers[expression]
            return number.node if isinstance(number, fx.Proxy) else number
        if value is None or isinstance(value, PLAIN):
            return value
        raise NotImplementedError(f"a {type(value).__name__} is passed to an operation")

    def constant(self, value: Any) -> fx.Node:
        """Add a placeholder for a tensor that is not an input, for instance a parameter."""
        if isinstance(value, FakeTensor):
            raise NotImplementedError("a tensor comes from where no operation was seen")
        with self.graph.inserting_after(self.last_placeholder):
            self.last_placeholder = self.graph.placeholder(f"constant_{len(self.constants)}")
        self.constants.append(value)
        self.keep(value, self.last_placeholder)
        self.nodes[id(value)] = self.last_placeholder
        return self.last_placeholder


def symbolic_length(mode: FakeTensorMode, name: str, length: int) -> torch.SymInt:
    context: StatelessSymbolicContext[Any, Any] = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC])
    stand_in = mode.from_tensor(torch.empty(length), source=ConstantSource(name), symbolic_context=context)
    return cast(torch.SymInt, stand_in.shape[0])


def fake_like(tensor: Tensor, dimension: tuple[int, str] | None, lengths: dict[str, torch.SymInt]) -> Tensor:
    """A tensor of the active fake mode like another, in which one dimension has a symbolic length."""
    shape: list[Any] = list(tensor.shape)
    if dimension is not None:
        shape[dimension[0]] = lengths[dimension[1]]
    return torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
