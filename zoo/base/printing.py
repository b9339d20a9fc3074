"""Text of strangers on terminals and pages: nothing in it is obeyed."""

from __future__ import annotations

import re

OBEYED = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ufeff]")
"""Control characters, ends of lines, and what turns the direction of writing."""


def printable(text: object, keep: str = "") -> str:
    """Write what a terminal would obey as escapes, so that a text of anybody's is shown and nothing else happens."""
    return OBEYED.sub(lambda found: found[0] if found[0] in keep else escaped(found[0]), str(text))


def escaped(character: str) -> str:
    """A character as in a string of Python."""
    return character.encode("unicode_escape").decode()
