"""The explorer in the browser: models as graphs with everything inside, and a page that needs no server."""

from .site import write_site

__all__ = ["write_site"]
