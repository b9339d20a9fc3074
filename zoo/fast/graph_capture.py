"""Graph capture: a function's operations, run in a row without the Python that chose them.

What a decode step computes takes PyTorch microseconds an operation, and as long again goes into modules, keyword
arguments and choices that come out the same in every step. CUDA graphs rid a GPU of that; here it is done for a CPU,
and lengths stay variables.

Operations are seen by a mode of PyTorch, which is the capturing thread's alone. `make_fx` and `torch.export` would do
the same work, but raise a flag and patch `nn.Module` for the whole process: other threads' compiled models fail then.
"""

from __future__ import annotations

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

from .graph_passes import eliminate_dead_code, fold_transposes

Program = Callable[..., tuple[Tensor, ...]]

SHORTEST = 2
"""The smallest length that a captured graph stands for: with 0 or 1 of something, other operations are chosen."""

PLAIN = (bool, int, float, str, slice, type(...), torch.dtype, torch.device, torch.layout, torch.memory_format)
"""Arguments that are the same in every run, and that a program can be written with."""

QUICKER: dict[Any, Callable[..., Any]] = {}
"""Operations where Python reaches them sooner than by the function that was captured."""


def grouped_mm_shape(rows: Tensor, weights: Tensor, **kwargs: Any) -> Tensor:
    """Shape and dtype of a product of rows, sorted by group, with a matrix for each group.

    Args:
        rows: *Shape:* (num_rows, in_width)
        weights: *Shape:* (num_groups, in_width, out_width)

    Returns:
        *Shape:* (num_rows, out_width)
    """
    return rows.new_empty(rows.shape[0], weights.shape[-1])


STAND_INS: dict[Any, Callable[..., Any]] = {
    getattr(place, name): grouped_mm_shape
    for place, name in ((nn.functional, "grouped_mm"), (torch, "_grouped_mm"))
    if hasattr(place, name)
}
"""Called on fake tensors instead of operations with a fake kernel for bfloat16 alone."""


@dataclass(frozen=True)
class CapturedGraph:
    """The operations of a function, to be run on other values and other lengths.

    Attributes:
        graph: The operations, on placeholders for all inputs and then for all constants.
        constants: Tensors that were no inputs, parameters for instance: the very same objects.
        holds: Whether the same operations would be chosen for such lengths, in the order in which they were given.
    """

    graph: fx.Graph
    constants: tuple[Tensor, ...]
    holds: Callable[..., bool]

    def fits(self, *lengths: int) -> bool:
        """Whether the captured operations are those of a run.

        Args:
            lengths: Those of the run, in the order in which they were given.

        Returns:
            False where other operations would be chosen.
        """
        return min(lengths) >= SHORTEST and bool(self.holds(*lengths))


def copy_graph(graph: fx.Graph) -> fx.Graph:
    """Copy a graph, so that it can be changed."""
    copy = fx.Graph()
    copy.output(copy.graph_copy(graph, {}))
    return copy


def compile_graph(graph: fx.Graph) -> Program:
    """Compile a captured graph to a Python function, which takes what the graph has placeholders for."""
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
    """Capture a function: run it on tensors without values, and note every operation.

    Args:
        function: Takes the tensors, then all lengths. It must not look at values, and what it changes in place must be
            among the tensors.
        tensors: What it would run on; only shapes and dtypes matter.
        dimensions: For every tensor the dimension that is a length, and which one; None if all of its shape is fixed.
        lengths: Numbers that may be other ones in every run, by name.

    Raises:
        Exception: Of any kind, where the function does what cannot be captured.
    """
    shapes = ShapeEnv(duck_shape=False)  # lengths that are equal by chance stay two
    fake = FakeTensorMode(shape_env=shapes, allow_non_fake_inputs=True)
    fake.cache_enabled = False  # it is the process's, and compares int8 weights, which cannot be compared
    with torch.inference_mode(False), torch.no_grad():
        symbolic = {name: symbolic_length(fake, name, length) for name, length in lengths.items()}
        symbols = [length.node.expr for length in symbolic.values()]  # before any turns out to depend on another
        with fake:
            inputs = [fake_like(*pair, symbolic) for pair in zip(tensors, dimensions, strict=True)]
            with CaptureMode(inputs, symbolic) as mode:
                outputs = function(*inputs, *symbolic.values())
        mode.graph.output(tuple(mode.argument(output) for output in outputs))
    condition = sympy.And(*(guard.expr for guard in shapes.guards))
    if not condition.free_symbols <= set(symbols):
        raise NotImplementedError("what is computed depends on values")
    fold_transposes(mode.graph)
    eliminate_dead_code(mode.graph)
    holds = sympy.lambdify(symbols, condition, modules="math")
    return CapturedGraph(mode.graph, tuple(mode.constants), holds)


class CaptureMode(TorchFunctionMode):
    """Notes every function of PyTorch that is called, in a graph.

    Args:
        inputs: Tensors without values, which become the graph's first placeholders.
        lengths: Its next ones, by name.
    """

    def __init__(self, inputs: Sequence[Tensor], lengths: Mapping[str, torch.SymInt]) -> None:
        super().__init__()
        self.graph = fx.Graph()
        self.constants: list[Any] = []
        self.nodes: dict[int, fx.Node] = {}
        self.kept: list[Any] = []  # what nodes are of: an id would stand for another object once they are gone
        self.numbers: dict[sympy.Expr, Any] = {}
        for place, tensor in enumerate(inputs):
            self.keep(tensor, self.graph.placeholder(f"input_{place}"))
        for name, length in lengths.items():
            self.last_placeholder = self.graph.placeholder(name)
            self.numbers[length.node.expr] = fx.Proxy(self.last_placeholder)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call a function, and note it if it makes or changes tensors."""
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
        """Remember which node gives a tensor, or each tensor of a tuple."""
        node.meta["val"] = result
        if isinstance(result, Tensor):
            self.kept.append(result)
            self.nodes[id(result)] = node
        elif isinstance(result, (tuple, list)):
            for place, one in enumerate(result):
                if isinstance(one, (Tensor, tuple, list)):
                    self.keep(one, self.graph.call_function(operator.getitem, (node, place)))

    def arguments(self, given: Any) -> Any:
        """Replace tensors and lengths by the nodes that give them, however deep they are nested."""
        return fx.node.map_aggregate(given, self.argument)

    def argument(self, value: Any) -> Any:
        """Find the node that gives a value.

        Args:
            value: An argument of a function, or what the captured function returns.

        Returns:
            A node; what stays the same in every run as it is.

        Raises:
            NotImplementedError: When it is of a kind that cannot be written down.
        """
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
        """Make a tensor that was no input, a parameter for instance, a further placeholder."""
        if isinstance(value, FakeTensor):
            raise NotImplementedError("a tensor comes from where no operation was seen")
        with self.graph.inserting_after(self.last_placeholder):
            self.last_placeholder = self.graph.placeholder(f"constant_{len(self.constants)}")
        self.constants.append(value)
        self.keep(value, self.last_placeholder)
        self.nodes[id(value)] = self.last_placeholder
        return self.last_placeholder


def symbolic_length(mode: FakeTensorMode, name: str, length: int) -> torch.SymInt:
    """Make a symbolic length: a number that stands for every other one, until it is compared."""
    context: StatelessSymbolicContext[Any, Any] = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC])
    stand_in = mode.from_tensor(torch.empty(length), source=ConstantSource(name), symbolic_context=context)
    return cast(torch.SymInt, stand_in.shape[0])


def fake_like(tensor: Tensor, dimension: tuple[int, str] | None, lengths: dict[str, torch.SymInt]) -> Tensor:
    """Make a fake tensor: the shape of another, with symbolic lengths, and no values.

    Args:
        tensor: Gives shape, dtype and device.
        dimension: Which dimension is a length, and which length.
        lengths: All lengths by name.

    Returns:
        One of the mode that is active. *Shape:* as tensor.
    """
    shape: list[Any] = list(tensor.shape)
    if dimension is not None:
        shape[dimension[0]] = lengths[dimension[1]]
    return torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
