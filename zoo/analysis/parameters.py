"""A variant's parameters, module by module, without allocating them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from zoo.base.printed import Note, Part, Printed, Table, Title
from zoo.building.builder import skeleton
from zoo.models import Position
from zoo.models.feed_forwards.mixture import Experts

from .own_settings import resolve

MODULE_HEADINGS = ("Module", "Shapes", "Parameters", "Times", "Total")  # Of a table of modules, numbers last


@dataclass(frozen=True)
class ParameterRow:
    """One parameter."""

    name: str  # Its name in the checkpoint
    shape: tuple[int, ...]
    count: int  # Its number of elements, 0 where it is shared: it has been counted there
    shared_with: str | None  # The parameter that it is, where it is one of the names of another
    is_embedding: bool  # Whether it belongs to an embedding of tokens or positions


@dataclass(frozen=True)
class ParameterTable(Printed):
    """All parameters of a model."""

    name: str  # The variant's name with its settings, or where the model was saved
    task: str  # Task of the model
    rows: tuple[ParameterRow, ...]  # The parameters, in the order of the model
    total: int  # Their number, each shared one counted once
    non_embedding: int  # The same without embeddings of tokens and positions
    active: int  # Their number without the experts that a token does not see

    def shown(self) -> Iterator[Part]:
        """A row a module, and what they sum up to."""
        yield Title(f"{self.name} for {self.task}", f"{self.total:,} parameters")
        modules = by_module(self)
        rows = [(row.name, row.shapes_text(), f"{row.count:,}", str(row.times), row.total_text) for row in modules]
        yield Table(rows, MODULE_HEADINGS, MODULE_HEADINGS[2:])
        yield from map(Note, self.remarks(modules))

    def remarks(self, modules: list[ModuleRow]) -> Iterator[str]:
        """Totals that no row has: shared parameters, active parameters for each token, and those without embeddings."""
        yield from (f"{row.name} uses what {row.shared_with} has." for row in modules if row.shared_with)
        if self.active != self.total:
            yield f"{self.active:,} of them for any one token, which does not see all experts"
        yield f"{self.non_embedding:,} without embeddings of tokens and positions"

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class ModuleRow:
    """The parameters of a module, and of its likes in other layers."""

    name: str  # The module's name, with "*" for the layer's number if other layers have the same
    shapes: dict[str, tuple[int, ...]]  # The shapes by the names of the parameters
    count: int  # Number of elements in one of the modules
    times: int  # Number of modules
    shared_with: str | None  # The module that it shares parameters with, if it has no other

    def shapes_text(self, *, named: bool = True) -> str:
        sizes = {key: "×".join(map(str, shape)) for key, shape in self.shapes.items()}
        return ", ".join(f"{key} {size}" for key, size in sizes.items()) if named else " + ".join(sizes.values())

    @property
    def total_text(self) -> str:
        """How many parameters all of them have, or "shared" where all have been counted before."""
        return f"{self.count * self.times:,}" if self.count else "shared"


def count_by_parameter(name: str, task: str | None = None, **overrides: Any) -> ParameterTable:
    resolved, task = resolve(name, task)
    model = skeleton(resolved, task, **overrides)
    embeddings = ids_of_embeddings(model)
    first: dict[int, str] = {}
    rows = []
    for key, parameter in model.named_parameters(remove_duplicate=False):
        owner = first.setdefault(id(parameter), key)
        count, shared_with = (parameter.numel(), None) if owner == key else (0, owner)
        rows.append(ParameterRow(key, tuple(parameter.shape), count, shared_with, id(parameter) in embeddings))
    total = sum(row.count for row in rows)
    return ParameterTable(
        name=name,
        task=task,
        rows=tuple(rows),
        total=total,
        non_embedding=sum(row.count for row in rows if not row.is_embedding),
        active=total - count_idle(model),
    )


def count_idle(model: nn.Module) -> int:
    """Count the parameters of experts that a token does not see."""
    return sum(
        parameter.numel() // experts.num_experts * (experts.num_experts - experts.num_experts_per_tok)
        for experts in model.modules()
        if isinstance(experts, Experts)
        for parameter in (experts.gate_up_proj, experts.down_proj, experts.gate_up_proj_bias, experts.down_proj_bias)
        if parameter is not None
    )


def ids_of_embeddings(model: nn.Module) -> set[int]:
    return {
        id(parameter)
        for module in model.modules()
        if isinstance(module, (nn.Embedding, Position))
        for parameter in module.parameters()
    }


def by_module(table: ParameterTable, *, fold: bool = True) -> list[ModuleRow]:
    """Put the parameters of each module into a row; `fold` joins those that are alike in all layers."""
    modules: dict[str, list[ParameterRow]] = {}
    for row in table.rows:
        modules.setdefault(row.name.rpartition(".")[0], []).append(row)
    folded: dict[tuple[Any, ...], ModuleRow] = {}
    for name, rows in modules.items():
        shapes = {row.name.rpartition(".")[2]: row.shape for row in rows}
        lenders = {row.shared_with.rpartition(".")[0] if row.shared_with else None for row in rows}
        # A tied projection may have its own bias: then both its count and the shared module are shown.
        lender = min(filter(None, lenders), default=None)
        label = without_number if fold else str
        made = ModuleRow(label(name), shapes, sum(row.count for row in rows), 1, lender and label(lender))
        key = (made.name, tuple(shapes.items()), made.count, made.shared_with)
        known = folded.get(key)
        folded[key] = made if known is None else dataclasses.replace(known, times=known.times + 1)
    return list(folded.values())


def without_number(name: str) -> str:
    return ".".join("*" if part.isdecimal() else part for part in name.split("."))
