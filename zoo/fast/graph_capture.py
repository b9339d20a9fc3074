"""A function's operations, recorded once and run in a row, without the Python that chose them.

What a step of generation computes takes PyTorch microseconds an operation, and as long again goes into modules, keyword
arguments and choices that come out the same in every step. CUDA graphs rid a GPU of that; here it is done for a CPU,
and lengths stay variables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import sympy
import torch
from torch import fx, nn
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.nn import functional as F

Program = Callable[..., tuple[torch.Tensor, ...]]

SHORTEST = 2
"""The smallest length that a recording stands for: with 0 or 1 of something, other operations are chosen."""

aten = torch.ops.aten
QUICKER: dict[Any, Callable[..., Any]] = {
    aten.linear.default: F.linear,
    aten.layer_norm.default: torch.layer_norm,
    aten.scaled_dot_product_attention.default: F.scaled_dot_product_attention,
    aten.embedding.default: torch.embedding,
    aten.gelu.default: torch._C._nn.gelu,
    aten.relu.default: torch.relu,
    aten.silu.default: torch._C._nn.silu,
    aten.add.Tensor: torch.add,
    aten.mul.Tensor: torch.mul,
    aten.view.default: torch.Tensor.view,
    aten.reshape.default: torch.reshape,
    aten.transpose.int: torch.transpose,
    aten.narrow.default: torch.narrow,
    aten.copy_.default: torch.Tensor.copy_,
}
"""The same operations where Python reaches them sooner; whoever has another one may add it."""

VIEWS = (aten.view.default, aten.reshape.default)


@dataclass(frozen=True)
class Recording:
    """What a function did, to be done again with other values and other lengths.

    Attributes:
        graph: The operations, on placeholders for all inputs and then for all constants.
        constants: Tensors that were no inputs, parameters for instance: the very same objects.
        holds: Whether the same operations would be chosen for such lengths, in the order in which they were given.
    """

    graph: fx.Graph
    constants: tuple[torch.Tensor, ...]
    holds: Callable[..., bool]

    def fits(self, *lengths: int) -> bool:
        """Whether the recording stands for a run.

        Args:
            lengths: Those of the run, in the order in which they were given.

        Returns:
            False where other operations would be chosen.
        """
        return min(lengths) >= SHORTEST and bool(self.holds(*lengths))


def copy_of(graph: fx.Graph) -> fx.Graph:
    """The same operations once more.

    Args:
        graph: The operations.

    Returns:
        A graph that can be changed.
    """
    copy = fx.Graph()
    copy.output(copy.graph_copy(graph, {}))
    return copy


def written_down(graph: fx.Graph) -> Program:
    """Write operations down as a Python function.

    Args:
        graph: The operations.

    Returns:
        Takes what the graph has placeholders for.
    """
    graph = copy_of(graph)
    for node in graph.nodes:
        if node.op == "call_function":
            node.target = QUICKER.get(node.target, node.target)
    return fx.GraphModule(nn.Module(), graph).forward


def record(
    function: Callable[..., tuple[torch.Tensor, ...]],
    tensors: Sequence[torch.Tensor],
    dimensions: Sequence[tuple[int, str] | None],
    lengths: dict[str, int],
) -> Recording:
    """Run a function on tensors without values, and note every operation.

    Args:
        function: Takes the tensors, then all lengths. It must not look at values, and what it changes in place must be
            among the tensors.
        tensors: What it would run on; only shapes and dtypes matter.
        dimensions: For every tensor the dimension that is a length, and which one; None if all of its shape is fixed.
        lengths: Numbers that may be other ones in every run, by name.

    Returns:
        The recording.

    Raises:
        Exception: Of any kind, where the function does what cannot be recorded.
    """
    shapes = ShapeEnv(duck_shape=False)  # lengths that are equal by chance stay two
    mode = FakeTensorMode(shape_env=shapes, allow_non_fake_inputs=True)
    with torch.inference_mode(False), torch.no_grad():
        symbolic = {name: variable(mode, name, length) for name, length in lengths.items()}
        symbols = [length.node.expr for length in symbolic.values()]
        with mode:
            inputs = [valueless(*pair, symbolic) for pair in zip(tensors, dimensions, strict=True)]
            traced = make_fx(function, _allow_non_fake_inputs=True, pre_dispatch=True)(*inputs, *symbolic.values())
    condition = sympy.And(*(guard.expr for guard in shapes.guards))
    if not condition.free_symbols <= set(symbols):
        raise NotImplementedError("what is computed depends on values")
    constants = constants_as_inputs(traced)
    fold_idle_moves(traced.graph)
    return Recording(traced.graph, constants, sympy.lambdify(symbols, condition, modules="math"))


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


def constants_as_inputs(module: fx.GraphModule) -> tuple[torch.Tensor, ...]:
    """Turn the tensors that a graph looks up into further inputs, the same one into one.

    Args:
        module: Its graph is changed.

    Returns:
        The tensors, in the order of the new inputs.
    """
    graph = module.graph
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    inputs: dict[int, fx.Node] = {}
    constants: list[torch.Tensor] = []
    for node in list(graph.find_nodes(op="get_attr")):
        constant = getattr(module, node.target)
        if id(constant) not in inputs:
            with graph.inserting_after(last):
                last = inputs[id(constant)] = graph.placeholder(f"constant_{len(constants)}")
            last.meta = node.meta
            constants.append(constant)
        node.replace_all_uses_with(inputs[id(constant)])
        graph.erase_node(node)
    graph.eliminate_dead_code()
    return tuple(constants)


def fold_idle_moves(graph: fx.Graph) -> None:
    """Fold transpositions that leave all elements in their order, as those of a single token, into views beside them.

    Args:
        graph: Changed in place.
    """
    for node in graph.find_nodes(op="call_function", target=aten.transpose.int):
        source, shape = node.args[0], node.meta["val"].shape
        if not all(type(size) is int for size in shape) or not keeps_order(source.meta["val"].shape, *node.args[1:]):
            continue
        if source.target in VIEWS:
            with graph.inserting_before(node):
                view = graph.call_function(aten.reshape.default, (source.args[0], list(shape)))
            view.meta = node.meta
            node.replace_all_uses_with(view)
        else:
            for user in list(node.users):
                if user.target in VIEWS:
                    user.target = aten.reshape.default
                    user.replace_input_with(node, source)
    graph.eliminate_dead_code()


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
