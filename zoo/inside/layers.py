"""A model as a table: its modules, the shapes that pass through them, and their parameters."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from transformers import PreTrainedModel

from zoo.analysis.inputs import inputs_of
from zoo.analysis.measuring.flops import without_values
from zoo.base.printed import Note, Part, Printed, Table, Title
from zoo.building.builder import skeleton
from zoo.building.loading import saved_class, saved_config
from zoo.building.weights import is_saved, locate
from zoo.fast.switches import fast_paths
from zoo.models.borrowing import borrowed_by
from zoo.models.validation import require_at_least
from zoo.models.wrapped import running_model
from zoo.training.generation.generating import position_limit

Shape = tuple[int, ...]

HEADINGS = ("Module", "Class", "Input", "Output", "Parameters")  # Of a summary
NUMBERED = re.compile(r"(.*\.layers\.)(\d+)(.*)")  # The path of a layer, or of something in it


@dataclass(frozen=True)
class SummaryRow:
    """One module.

    Attributes:
        path: Its place in the model, e.g. "model.layers.0.mlp"; "model.layers.0-5.mlp" for the same in several layers.
        depth: Nesting depth.
        kind: Its class.
        input_shape: Of the first tensor that it is given; None where it is given none, or never called.
        output_shape: Of the first tensor that it returns.
        parameters: Its number of parameters and of what it holds, each counted where it comes first.
        shared_with: The module that has its parameters, where all of them have been counted there.
        times: Number of equal layers that the row represents.
    """

    path: str
    depth: int
    kind: str
    input_shape: Shape | None
    output_shape: Shape | None
    parameters: int
    shared_with: str | None = None
    times: int = 1

    @property
    def label(self) -> str:
        """Its own name, with the number of a layer, indented by depth."""
        path, _, own = self.path.rpartition(".")
        name = f"{path.rpartition('.')[2]}.{own}" if path.endswith(".layers") else own
        return "  " * (self.depth - self.path.count("layers.")) + name

    @property
    def count(self) -> str:
        """Its parameters, and in how many layers; "shared" where all have been counted before."""
        if self.shared_with:
            return "shared"
        times = f"{self.times} × " if self.times > 1 else ""
        return f"{times}{self.parameters:,}" if self.parameters else ""

    def cells(self) -> tuple[str, ...]:
        """Cells below `HEADINGS`."""
        return self.label, self.kind, shape_text(self.input_shape), shape_text(self.output_shape), self.count


@dataclass(frozen=True)
class Summary(Printed):
    """A model as a table.

    Attributes:
        name: The given name.
        rows: Its modules, in their order.
        total: The number of parameters, each counted once.
        trainable: The number of those that training changes.
    """

    name: str
    rows: tuple[SummaryRow, ...]
    total: int
    trainable: int

    def shown(self) -> Iterator[Part]:
        yield Title(self.name, self.totals)
        yield Table([row.cells() for row in self.rows], HEADINGS, HEADINGS[-1:])
        yield from map(Note, self.remarks())

    @property
    def totals(self) -> str:
        """Number of parameters."""
        return f"{self.total:,} parameters, {self.trainable:,} of them trained"

    def remarks(self) -> Iterator[str]:
        """List modules that only hold shared parameters."""
        return (f"{row.path} uses what {row.shared_with} has." for row in self.rows if row.shared_with)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_records(self) -> list[dict[str, Any]]:
        """Write the rows as plain data, a record a row, e.g. for `pandas.DataFrame`."""
        return [asdict(row) for row in self.rows]


def summary(
    model: str | Path | PreTrainedModel,
    task: str | None = None,
    *,
    depth: int | None = None,
    batch_size: int = 1,
    seq_len: int = 128,
    fold: bool = True,
) -> Summary:
    """Summarise a model, module by module, with shapes from a run without numbers.

    Args:
        model: A variant's name, possibly with settings, a checkpoint's folder, or the name of weights, all without
            allocating weights; or a model.
        task: Task of a variant, by default its first.
        depth: Depth of modules, by default down to the parts of a layer: 1 for the parts of the model.
        batch_size: Number of examples to run.
        seq_len: Their length, at most: positions may end before.
        fold: Whether layers that are alike share their rows.

    Raises:
        ZooError: When the variant or the checkpoint does not exist, or a size is less than one.
    """
    require_at_least(1, batch_size=batch_size, seq_len=seq_len, depth=1 if depth is None else depth)
    if isinstance(model, (str, os.PathLike)):
        name = os.fspath(model)
        built = unallocated(name, task)
    else:
        built = running_model(model)
        name = type(built).__name__
    limit = position_limit(built)
    with FakeTensorMode(), fast_paths(unpadding="never"):
        hollow = without_values(built)
        hollow.set_experts_implementation("batched_mm")  # grouped products have shapes in bfloat16 alone
        length = seq_len if limit is None else min(seq_len, limit)
        shapes = shapes_of(hollow, inputs_of(built, torch.zeros(batch_size, length, dtype=torch.long)))
    modules = {path: module for path, module in built.named_modules() if path}
    if depth is None:
        inside = [path.count(".") + 1 for path in modules if NUMBERED.fullmatch(path)]
        depth = min(inside, default=1) + 1
    owners: dict[int, str] = {}
    for path, parameter in built.named_parameters():
        owners.setdefault(id(parameter), path)
    rows = [
        row_of(path, module, shapes.get(path, (None, None)), owners)
        for path, module in modules.items()
        if path.count(".") < depth and not isinstance(module, (nn.Identity, nn.ModuleList))
    ]
    rows = [row for row in rows if row.output_shape is not None or row.parameters]
    counts = {id(one): one for one in built.parameters()}.values()
    return Summary(
        name,
        tuple(folded(rows)) if fold else tuple(rows),
        sum(one.numel() for one in counts),
        sum(one.numel() for one in counts if one.requires_grad),
    )


def unallocated(name: str, task: str | None) -> PreTrainedModel:
    if not is_saved(name):
        return skeleton(name, task)
    folder = locate(name)
    config = saved_config(folder)
    with torch.device("meta"):
        return saved_class(folder, config)(config).eval()


@torch.no_grad()
def shapes_of(model: PreTrainedModel, arguments: Mapping[str, Any]) -> dict[str, tuple[Shape | None, Shape | None]]:
    """Run a model, and note the shapes of what each module is given and returns in its first call, by its path."""
    found: dict[str, tuple[Shape | None, Shape | None]] = {}
    paths = {module: path for path, module in model.named_modules()}

    def shape(value: Any) -> Shape | None:
        return next((tuple(leaf.shape) for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)), None)

    def note(module: nn.Module, given: Any, returned: Any) -> None:
        found.setdefault(paths[module], (shape(given), shape(returned)))

    with ExitStack() as hooks:
        for module in paths:
            hooks.enter_context(module.register_forward_hook(note))
        model(**arguments)
    return found


def shape_text(shape: Shape | None) -> str:
    return "×".join(map(str, shape or ()))


def row_of(
    path: str, module: nn.Module, shapes: tuple[Shape | None, Shape | None], owners: dict[int, str]
) -> SummaryRow:
    borrowed = (
        (f"{name}.{inner}", parameter)
        for name, lent in borrowed_by(module).items()
        for inner, parameter in lent.named_parameters()
    )
    every = [*module.named_parameters(), *borrowed]
    held = {name: (parameter.numel(), owners[id(parameter)]) for name, parameter in every}
    own = [size for size, owner in held.values() if owner.startswith(f"{path}.")]
    lenders = [owner.removesuffix(f".{name}") for name, (_, owner) in held.items()]
    lender = lenders[0] if lenders and not own else None
    return SummaryRow(path, path.count("."), type(module).__name__, *shapes, sum(own), lender)


def folded(rows: list[SummaryRow]) -> Iterator[SummaryRow]:
    for stack, inside in groupby(rows, key=lambda row: layer_of(row)[0]):
        if not stack:
            yield from inside
            continue
        layers = [list(layer) for _, layer in groupby(inside, key=layer_of)]
        for alike in (list(group) for _, group in groupby(layers, key=lambda layer: relabelled(layer, "", 0))):
            first, last = (layer_of(layer[0])[1] for layer in (alike[0], alike[-1]))
            yield from relabelled(alike[0], first if first == last else f"{first}-{last}", len(alike))


def layer_of(row: SummaryRow) -> tuple[str, str]:
    parts = NUMBERED.fullmatch(row.path)
    return (parts[1], parts[2]) if parts else ("", "")


def relabelled(layer: list[SummaryRow], label: str, times: int) -> list[SummaryRow]:
    def rename(path: str | None) -> str | None:
        return path and NUMBERED.sub(rf"\g<1>{label}\g<3>", path)

    return [
        replace(row, path=rename(row.path) or "", shared_with=rename(row.shared_with), times=times) for row in layer
    ]
