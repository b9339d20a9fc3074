"""How options are spelled: with hyphens or underscores, and some as they were called before."""

from __future__ import annotations

from typing import Any

import click


def hyphenated(word: str) -> str:
    """Spell an option as the help does."""
    return word.replace("_", "-")


class RenamedOption(click.Option):
    """An option that still understands what it was called before, and does not show it.

    Args:
        former: Its former spelling.
    """

    def __init__(self, *args: Any, former: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.former = former

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Add both spellings."""
        shown, self.opts = self.opts, [*self.opts, self.former]
        super().add_to_parser(parser, ctx)
        self.opts = shown
