"""A comparison as a page: one file that works offline."""

from .page import to_html

__all__ = ["to_html"]
