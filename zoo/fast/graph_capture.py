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
from torch import fx, nn
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

Program = Callable[..., tuple[torch.Tensor, ...]]

SHORTEST = 2
"""The smallest length that a captured graph stands for: with 0 or 1 of something, other operations are chosen."""

PLAIN = (bool, int, float, str, slice, type(...), torch.dtype, torch.device, torch.layout, torch.memory_format)
"""Arguments that are the same in every run, and that a program can be written with."""

VIEWS = (torch.Tensor.view, torch.Tensor.reshape)

QUICKER: dict[Any, Callable[..., Any]] = {}
"""Operations where Python reaches them sooner than by the function that was captured."""


@dataclass(frozen=True)
class CapturedGraph:
    """The operations of a function, to be run on other values and other lengths.

    Attributes:
        graph: The operations, on placeholders for all inputs and then for all constants.
        constants: Tensors that were no inputs, parameters for instance: the very same objects.
        holds: Whether the same operations would be chosen for such lengths, in the order in which they were given.
    """

    graph: fx.Graph
    constants: tuple[torch.Tensor, ...]
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
    """The same operations once more.

    Args:
        graph: The operations.

    Returns:
        A graph that can be changed.
    """
    copy = fx.Graph()
    copy.output(copy.graph_copy(graph, {}))
    return copy


def compile_graph(graph: fx.Graph) -> Program:
    """Write a captured graph down as a Python function.

    Args:
        graph: The operations.

    Returns:
        Takes what the graph has placeholders for.
    """
    graph = copy_graph(graph)
    for node in graph.nodes:
        if node.op == "call_function":
            node.target = QUICKER.get(node.target, node.target)
    return fx.GraphModule(nn.Module(), graph).forward


def capture(
    function: Callable[..., tuple[torch.Tensor, ...]],
    tensors: Sequence[torch.Tensor],
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

    Returns:
        The captured graph.

    Raises:
        Exception: Of any kind, where the function does what cannot be captured.
    """
    shapes = ShapeEnv(duck_shape=False)  # lengths that are equal by chance stay two
    fake = FakeTensorMode(shape_env=shapes, allow_non_fake_inputs=True)
    fake.cache_enabled = False  # it is the process's, and compares int8 weights, which cannot be compared
    with torch.inference_mode(False), torch.no_grad():
        symbolic = {name: variable(fake, name, length) for name, length in lengths.items()}
        symbols = [length.node.expr for length in symbolic.values()]  # before any turns out to depend on another
        with fake:
            inputs = [valueless(*pair, symbolic) for pair in zip(tensors, dimensions, strict=True)]
            with CaptureMode(inputs, symbolic) as mode:
                outputs = function(*inputs, *symbolic.values())
        mode.graph.output(tuple(mode.argument(output) for output in outputs))
    condition = sympy.And(*(guard.expr for guard in shapes.guards))
    if not condition.free_symbols <= set(symbols):
        raise NotImplementedError("what is computed depends on values")
    fold_idle_moves(mode.graph)
    remove_unused(mode.graph)
    holds = sympy.lambdify(symbols, condition, modules="math")
    return CapturedGraph(mode.graph, tuple(mode.constants), holds)


class CaptureMode(TorchFunctionMode):
    """Notes every function of PyTorch that is called, in a graph.

    Args:
        inputs: Tensors without values, which become the graph's first placeholders.
        lengths: Its next ones, by name.
    """

    def __init__(self, inputs: Sequence[torch.Tensor], lengths: Mapping[str, torch.SymInt]) -> None:
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
        result = func(*args, **kwargs)
        writes = versions != [tensor._version for tensor in tensors]
        if writes or any(isinstance(one, torch.Tensor) for one in tree_leaves(result)):
            if getattr(func, "__name__", None) == "__get__":  # of a property, as `mT` is
                func, args = getattr, (*args, func.__self__.__name__)
            node = self.graph.call_function(func, *map(self.arguments, (args, kwargs)))
            node.meta["writes"] = writes
            self.keep(result, node)
        return result

    def keep(self, result: Any, node: fx.Node) -> None:
        """Remember which node gives a tensor, or each tensor of a tuple."""
        node.meta["val"] = result
        if isinstance(result, torch.Tensor):
            self.kept.append(result)
            self.nodes[id(result)] = node
        elif isinstance(result, (tuple, list)):
            for place, one in enumerate(result):
                if isinstance(one, (torch.Tensor, tuple, list)):
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
        if isinstance(value, (torch.Tensor, torch.ScriptObject)):
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


def variable(mode: FakeTensorMode, name: str, length: int) -> torch.SymInt:
    """A number that stands for others as well.

    Args:
        mode: Where it is to be used.
        name: What it is called.
        length: One of them.

    Returns:
        The number.
    """
    context: StatelessSymbolicContext[Any, Any] = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC])
    stand_in = mode.from_tensor(torch.empty(length), source=ConstantSource(name), symbolic_context=context)
    return cast(torch.SymInt, stand_in.shape[0])


def valueless(
    tensor: torch.Tensor, dimension: tuple[int, str] | None, lengths: dict[str, torch.SymInt]
) -> torch.Tensor:
    """A tensor like another, without values, and with a variable where it has a length.

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


def remove_unused(graph: fx.Graph) -> None:
    """Remove operations whose result nobody reads, unless they write.

    Args:
        graph: Changed in place.
    """
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not node.users and not node.meta.get("writes"):
            graph.erase_node(node)


def fold_idle_moves(graph: fx.Graph) -> None:
    """Fold transpositions that leave all elements in their order, as those of a single token, into views beside them.

    Args:
        graph: Changed in place.
    """
    for node in graph.find_nodes(op="call_function", target=torch.Tensor.transpose):
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
                    user.target = torch.Tensor.reshape
                    user.replace_input_with(node, source)


def keeps_order(shape: Sequence[int], first: int, second: int) -> bool:
    """Whether elements stay in their order when two dimensions are swapped.

    Args:
        shape: Before.
        first: One of the dimensions.
        second: The other one.

    Returns:
        True where nothing but dimensions of size 1 moves past another.
    """
    dimensions = list(range(len(shape)))
    moved = dimensions.copy()
    moved[first], moved[second] = moved[second], moved[first]
    return [place for place in dimensions if shape[place] != 1] == [place for place in moved if shape[place] != 1]
