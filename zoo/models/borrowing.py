"""Modules that are used in two places under one name."""

from typing import Any

from torch import nn


class Borrower(nn.Module):
    """A module that uses another's children, which are listed there alone: PEFT would replace only one of two names."""

    lenders: dict[str, tuple[nn.Module]]

    def borrow(self, lender: nn.Module, *names: str) -> None:
        """Use children of another module from now on, in place of own ones."""
        for name in names:
            delattr(self, name)
        # A module in a tuple is no child.
        self.lenders = dict.fromkeys(names, (lender,))

    def __getattr__(self, name: str) -> Any:
        lender = self.__dict__.get("lenders", {}).get(name)
        return super().__getattr__(name) if lender is None else getattr(lender[0], name)


def borrowed_by(module: nn.Module) -> dict[str, nn.Module]:
    """The modules that a module uses as its children although they belong to another one."""
    return {name: getattr(module, name) for name in module.lenders} if isinstance(module, Borrower) else {}
