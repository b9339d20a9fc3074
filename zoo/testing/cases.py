"""The checks, and which of them apply to a variant and task."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from zoo.base.errors import UnknownVariantError
from zoo.building.builder import stack_of
from zoo.registry import VARIANTS, Registry, Task, list_variants, parse_name

from .subjects import Subject, subject_of

TOLERANCE = 1e-9  # Largest difference that float64 arithmetic in another order makes in a tiny model
EFFECT = 1e-7  # Smallest difference that counts as one


def difference(one: Tensor, other: Tensor) -> float:
    """The largest absolute difference; infinity for NaN or different shapes."""
    if one.shape != other.shape:
        return float("inf")
    apart = (one.double() - other.double()).abs().max().item()
    return float("inf") if apart != apart else apart


def assert_equal(one: Tensor, other: Tensor, what: str, tolerance: float = TOLERANCE) -> None:
    """Raise AssertionError, naming the property `what`, if tensors differ by more than the tolerance."""
    assert one.shape == other.shape, f"{what}: shapes {tuple(one.shape)} and {tuple(other.shape)} differ"
    apart = difference(one, other)
    assert apart <= tolerance, f"{what}: the largest difference is {apart:.2e}, allowed are {tolerance:.0e}"


def assert_same_weights(one: nn.Module, other: nn.Module, what: str) -> None:
    """Require the weights of two models to be equal bit for bit."""
    weights, others = one.state_dict(), other.state_dict()
    assert weights.keys() == others.keys(), f"{what}: one alone has {sorted(weights.keys() ^ others.keys())}"
    differing = [name for name, weight in weights.items() if not torch.equal(weight, others[name])]
    assert not differing, f"{what}: other weights in {differing}"


def assert_different(one: Tensor, other: Tensor, what: str) -> None:
    """Raise AssertionError, naming the property `what`, if tensors are equal up to rounding."""
    assert difference(one, other) > EFFECT, f"{what}: nothing differs"


def assert_finite(tensor: Tensor, what: str) -> None:
    """Raise AssertionError, naming the tensor `what`, if an element is infinite or NaN."""
    wrong = int((~tensor.isfinite()).sum())
    assert wrong == 0, f"{what}: {wrong} of {tensor.numel()} elements are not finite"


STACKS = ("encoder", "decoder", "encoder-decoder")
GENERATIVE = (Task.CAUSAL_LM, Task.SEQ2SEQ_LM)


@dataclass(frozen=True)
class Check:
    """A property that models must have.

    Args:
        name: Its name, a sentence.
        function: Raises AssertionError with an explanation where a model lacks it.
        stacks: Stacks it is about.
        tasks: Tasks it is about.
        once_per_stack: Whether it is about the body only, so that one head a stack is enough.
    """

    name: str
    function: Callable[[Subject], None]
    stacks: tuple[str, ...]
    tasks: tuple[str, ...]
    once_per_stack: bool = False


CHECKS: Registry[Check] = Registry("check")
"""All checks, by name."""


def check(
    *, stacks: Iterable[str] = STACKS, tasks: Iterable[str] = tuple(Task), once_per_stack: bool = False
) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    """Register a check: a decorator for a function that takes a [`Subject`][] and raises where it fails.

    Arguments as for [`Check`][]. The decorator returns the function as it is.
    """

    def add(function: Callable[[Subject], None]) -> Callable[[Subject], None]:
        name = function.__name__.removeprefix("check_")
        CHECKS.register(name, Check(name, function, tuple(stacks), tuple(tasks), once_per_stack))
        return function

    return add


@dataclass(frozen=True)
class Case:
    """One check of one variant for one task. Call it to run it; `str` names it.

    Args:
        variant: The variant's name, possibly with settings.
        task: Task of the model.
        check: The property.
    """

    variant: str
    task: str
    check: Check

    def __call__(self) -> None:
        """Run the check."""
        try:
            self.check.function(subject_of(self.variant, self.task))
        except AssertionError as error:
            raise AssertionError(f"{self.variant}, {self.task}: {error}") from error

    def __str__(self) -> str:
        return f"{self.variant}-{self.task}-{self.check.name}"


def cases(names: str | Iterable[str] = "*", *, skip: Iterable[str] = ()) -> list[Case]:
    """List every check of every task of some variants: the whole suite for `pytest.mark.parametrize(..., ids=str)`.

    Args:
        names: Names of variants, with settings or with wildcards.
        skip: Names of checks to leave out, for what the variant's `limits` exclude.

    Returns:
        The cases, variant by variant.

    Raises:
        UnknownNameError: When `skip` names no check, or nothing matches a name.
    """
    left_out = {CHECKS.get(name).name for name in skip}
    listed: list[Case] = []
    for name in (names,) if isinstance(names, str) else names:
        is_pattern = any(letter in name.partition(":")[0] for letter in "*?[!")  # settings may hold lists
        matching = list_variants(name) if is_pattern else [name]
        if not matching:
            raise UnknownVariantError(name, list_variants())
        for variant_name in matching:
            listed += _cases_of(variant_name, left_out)
    return listed


def _cases_of(name: str, left_out: set[str]) -> list[Case]:
    variant = VARIANTS.get(parse_name(name).name)
    stacks = {task: stack_of(variant, task) for task in variant.tasks}
    listed = []
    for known in map(CHECKS.get, CHECKS.names()):
        seen: set[str] = set()
        for task, stack in stacks.items():
            applies = known.name not in left_out and stack in known.stacks and task in known.tasks
            if applies and not (known.once_per_stack and stack in seen):
                listed.append(Case(name, str(task), known))
                seen.add(stack)
    return sorted(listed, key=lambda case: variant.tasks.index(case.task))


def check_variant(name: str, *, skip: Iterable[str] = ()) -> int:
    """Run the whole suite on a variant, for those who use no test runner. Arguments as for [`cases`][].

    Returns:
        How many checks have passed.

    Raises:
        AssertionError: At the first check that fails.
    """
    listed = cases(name, skip=skip)
    for case in listed:
        case()
    return len(listed)
