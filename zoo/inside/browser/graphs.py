"""Graphs for ONNX Runtime Web, and one file of weights for all graphs of a model.

Weights that half precision holds exactly are stored so, the high bytes first: they compress well. The page widens them
to float32 again, in the layout to which the graphs' external data refer. Of a large model matrices are rounded before.
"""

from __future__ import annotations

import io
import lzma
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zoo.base.errors import first_line
from zoo.base.folders import scratch_folder
from zoo.converters.errors import ExportError, require
from zoo.converters.weights import traceable
from zoo.models import ZooPreTrainedModel
from zoo.models.residual import SingleStream
from zoo.models.stack import ZooStack, stacks_of

from .tracing import TOKENS, Inspected, input_names, kinds_of, output_names

OPSET = 18
HALVES, SINGLES = "halves", "singles"  # Names under which graphs refer to weights
TOLERANCE = 1e-4  # Largest difference between a graph and its model, absolute and relative

TRACED, TRIED = (5, 3), (8, 6)
"""Lengths of source and target, of the example that is traced and of the one that is compared."""

SMALL = 64  # Numbers below which a tensor stays in the graph
EXACT = "x"  # Start of the names of operators that the page does not compute by WebGPU: the first 300, see engine.ts

ROUGH = (
    *("Sin", "Cos"),  # need be exact to 2**-11 only
    *("And", "Or", "Not", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Expand", "Where"),
)
"""Operators that WebGPU computes otherwise. Masks of 4 tokens were wrong after shorter ones (ONNX Runtime 1.27)."""

NUMBERS = {"lc": 0, "pb": 0}  # Options of xz for numbers, which do not predict each other


def packed(content: bytes, **options: int) -> bytes:
    """Compress a file as xz, which takes a third less for the engine than gzip; xz-decompress reads it on the page."""
    lzma2 = {"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 1 << 23, **options}
    return lzma.compress(content, check=lzma.CHECK_CRC32, filters=[lzma2])


def rounded(values: Tensor, bits: int) -> Tensor:
    """Round numbers to the nearest with this number of significant bits."""
    fraction, exponent = torch.frexp(values)
    return torch.ldexp((fraction * 2**bits).round() / 2**bits, exponent)


class Weights:
    """Weights of several graphs, each stored once, by the file that graphs look for them in."""

    def __init__(self) -> None:
        self.places: dict[bytes, tuple[str, int]] = {}
        self.stored: dict[str, list[NDArray[np.float32]]] = {HALVES: [], SINGLES: []}

    @property
    def sizes(self) -> dict[str, int]:
        """How many numbers each file has."""
        return {file: sum(one.size for one in stored) for file, stored in self.stored.items()}

    def place(self, values: NDArray[np.float32]) -> tuple[str, int]:
        """Store a tensor, unless an equal one is stored: its file, and its first byte there."""
        key = values.tobytes()
        if key not in self.places:
            with np.errstate(over="ignore"):
                exact = np.array_equal(values.astype(np.float16).astype(np.float32), values)
            file = HALVES if exact else SINGLES
            self.places[key] = file, 4 * self.sizes[file]
            self.stored[file].append(values.ravel())
        return self.places[key]

    def content(self) -> bytes:
        """Both files as one: high bytes of all halves, their low bytes, then the singles; little-endian."""
        halves = np.concatenate([np.empty(0, np.float32), *self.stored[HALVES]]).astype("<f2")
        singles = np.concatenate([np.empty(0, np.float32), *self.stored[SINGLES]]).astype("<f4")
        low, high = halves.view(np.uint8).reshape(-1, 2).T
        return high.tobytes() + low.tobytes() + singles.tobytes()

    def write(self, folder: Path) -> None:
        """Write both files as graphs read them."""
        for file, stored in self.stored.items():
            (folder / file).write_bytes(b"".join(one.astype("<f4").tobytes() for one in stored))


def example(model: ZooPreTrainedModel, lengths: tuple[int, int], *, padded: bool = False) -> tuple[Tensor, ...]:
    """Two rows of random ids, all heads and layers on; `lengths` are those of source and target."""
    random = torch.Generator().manual_seed(0)
    given: list[Tensor] = []
    stacks = stacks_of(model)
    for stack, length in zip(stacks.values(), lengths, strict=False):
        ids = torch.randint(4, stack.config.vocab_size, (2, length), generator=random)
        mask = torch.ones_like(ids)
        if padded:
            ids[1, -2:], mask[1, -2:] = model.config.pad_token_id or 0, 0
        given += [ids, mask, stack.position.count(ids, mask).expand_as(ids)]
    heads = [torch.ones(depth(owner), owner.config.num_attention_heads) for owner in owners(model)]
    return (*given, *heads, *(torch.ones(depth(stack)) for stack in stacks.values()))


def owners(model: ZooPreTrainedModel) -> list[ZooStack]:
    """The stack of every kind of attention."""
    stacks = stacks_of(model)
    return [stacks.get(kind, stacks.get("decoder")) for kind in kinds_of(model)]  # type: ignore[misc]


def depth(stack: ZooStack) -> int:
    return stack.config.num_hidden_layers


def inspected(model: ZooPreTrainedModel) -> Inspected:
    """A copy of a model that returns everything inside; an ExportError if the page could not show it."""
    config = model.config
    if config.mixer_layer_type is not None:
        raise ExportError(f"a page shows attention, and layers with mixer={config.mixer!r} have none")
    if any(type(stack.stream) is not SingleStream for stack in stacks_of(model).values()):
        raise ExportError(f"a page shows one vector a token, and residual={config.residual!r} keeps others")
    return Inspected(traceable(model)).eval()


def graph_of(inside: Inspected, weights: Weights, *, same_length: bool = False) -> bytes:
    """Write one graph, compressed and checked, and put its weights where those of the model's other graphs are."""
    require("onnx", "onnx", "onnxruntime")
    graph = moved(traced(inside, same_length), weights)
    verify(inside, graph, weights, same_length)
    return packed(graph)


def traced(inside: Inspected, same_length: bool) -> bytes:
    """Trace a model, in a second where `torch.export` takes half a minute; `verify` tries other lengths."""
    model = inside.model
    tokens = [name for name in input_names(model) if name.endswith(TOKENS)]
    axes = {name: {0: "batch_size", 1: f"{name.partition('_')[0]}_len"} for name in tokens}
    given = example(model, (TRACED[0], TRACED[0]) if same_length else TRACED)
    torch.onnx.register_custom_op_symbolic("aten::rms_norm", rms_norm, OPSET)  # type: ignore[attr-defined]
    try:
        with scratch_folder() as folder, warnings.catch_warnings(), redirect_stdout(io.StringIO()), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                inside,
                given,
                folder / "graph.onnx",
                input_names=list(input_names(model)),
                output_names=list(output_names(model)),
                dynamic_axes=axes,
                dynamo=False,
                opset_version=OPSET,
                do_constant_folding=False,  # initialisers stay the model's own weights
            )
            return (folder / "graph.onnx").read_bytes()
    except Exception as error:
        # Any error of tracing a variant's code: the export is refused with the reason.
        refused = f"variant {model.config.variant!r} cannot be traced for a page"
        raise ExportError(f"{refused}: {first_line(error)}") from error


def rms_norm(graph: Any, hidden: Any, shape: Any, weight: Any, epsilon: Any) -> Any:
    """Operators of `aten::rms_norm`, for which the exporter has none (Zhang and Sennrich 2019)."""
    from torch.onnx.symbolic_helper import _get_const, _is_none

    tiny = None if _is_none(epsilon) else _get_const(epsilon, "f", "eps")
    tiny = torch.finfo(torch.float32).eps if tiny is None else tiny
    mean = graph.op("ReduceMean", graph.op("Mul", hidden, hidden), _constant(graph, [-1]), keepdims_i=1)
    root = graph.op("Sqrt", graph.op("Add", mean, _constant(graph, tiny)))
    normed = graph.op("Div", hidden, root)
    return normed if _is_none(weight) else graph.op("Mul", normed, weight)


def _constant(graph: Any, value: Any) -> Any:
    return graph.op("Constant", value_t=torch.tensor(value))


def moved(file: bytes, weights: Weights) -> bytes:
    """Move the weights out of a graph, which then refers to their places, and name operators of `ROUGH`."""
    import onnx

    model = onnx.load_from_string(file)
    for number, node in enumerate(node for node in model.graph.node if node.op_type in ROUGH):
        node.name = f"{EXACT}{number}"
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.size >= SMALL:
            location, offset = weights.place(values)
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", location), ("offset", offset), ("length", values.nbytes)):
                tensor.external_data.add(key=key, value=str(value))
    return bytes(model.SerializeToString())


def verify(inside: Inspected, graph: bytes, weights: Weights, same_length: bool) -> None:
    """Compare a graph with its model, on rows of other lengths, one with padding, and with a head and a layer off."""
    import onnxruntime

    model, names = inside.model, input_names(inside.model)
    lengths = (TRIED[0], TRIED[0]) if same_length else TRIED
    plain, given = (example(model, lengths, padded=True) for _ in range(2))
    given[names.index(f"{kinds_of(model)[-1]}_heads")][0, 1] = given[-1][-1] = 0.0
    with torch.no_grad():
        refuse_difference("logits of the recorded model", inside(*plain)[0][-1], own_logits(model, plain), model)
        expected = inside(*given)
    with scratch_folder() as folder:
        weights.write(folder)
        (folder / "graph.onnx").write_bytes(graph)
        session = onnxruntime.InferenceSession(str(folder / "graph.onnx"), providers=["CPUExecutionProvider"])
        read = {entry.name: given[names.index(entry.name)].numpy() for entry in session.get_inputs()}
        found = session.run(list(output_names(model)), read)
    for name, one, other in zip(output_names(model), found, expected, strict=True):
        refuse_difference(name, torch.from_numpy(one), other, model)


def own_logits(model: ZooPreTrainedModel, given: tuple[Tensor, ...]) -> Tensor:
    ids, mask, _, *rest = given
    arguments = {"input_ids": ids, "attention_mask": mask}
    if model.config.stack == "encoder-decoder":
        arguments |= {"decoder_input_ids": rest[0], "decoder_attention_mask": rest[1]}
    return model(**arguments).logits


def refuse_difference(name: str, found: Tensor, expected: Tensor, model: ZooPreTrainedModel) -> None:
    if not torch.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
        difference = float((found - expected).abs().max())
        raise ExportError(f"{name} of variant {model.config.variant!r} differ by {difference:.1e}, so it has no page")
