"""Modules that serve in two places under one name."""

from __future__ import annotations

from typing import Any

from torch import nn


class Borrower(nn.Module):
    """A module that uses children of another module in the place of its own.

    They are listed under the other's names alone. A module with two names is replaced under one of them by whatever
    replaces modules, such as PEFT, and the other place goes on without the replacement.
    """

    lenders: dict[str, tuple[nn.Module]]

    def borrow(self, lender: nn.Module, *names: str) -> None:
        """Use children of another module from now on.

        Args:
            lender: The module that has them. Both stand in one model, so that they are copied together.
            names: Their names, the same there as here, where children of these names are removed.
        """
        for name in names:
            delattr(self, name)
        # A module that stands in a tuple is no child.
        self.lenders = dict.fromkeys(names, (lender,))

    def __getattr__(self, name: str) -> Any:
        lender = self.__dict__.get("lenders", {}).get(name)
        return super().__getattr__(name) if lender is None else getattr(lender[0], name)


def borrowed_by(module: nn.Module) -> dict[str, nn.Module]:
    """The modules that a module uses as its children although they are another's.

    Returns:
        The modules by name, none unless it is a [`Borrower`][].
    """
    return {name: getattr(module, name) for name in module.lenders} if isinstance(module, Borrower) else {}
