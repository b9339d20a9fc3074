"""Keyword arguments that editors complete: TypedDicts for type checkers, and fields for jedi, which knows no Unpack."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, dataclass_transform

__all__ = ["Keywords", "spell_out"]

TYPE_CHECKING = False
"""True for type checkers, which go by the name (PEP 484), and False for jedi, which reads the value."""

if TYPE_CHECKING:
    from typing import TypedDict as Keywords
else:

    @dataclass_transform(kw_only_default=True)
    class Keywords(dict):
        """A dictionary with the keys that its class annotates, as a TypedDict is."""

        def __init_subclass__(cls, *, total: bool = True) -> None: ...


def spell_out(function: Callable[..., Any], keywords: type[Any]) -> None:
    """Let `inspect.signature` list the keyword arguments that a function takes by `**`, for completion in notebooks."""
    signature = inspect.signature(function)
    *named, others = signature.parameters.values()
    known = {name for one in reversed(keywords.__mro__) for name in getattr(one, "__annotations__", ())}
    known -= signature.parameters.keys()
    listed = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=...) for name in sorted(known)]
    function.__signature__ = signature.replace(parameters=[*named, *listed, others])  # type: ignore[attr-defined]
