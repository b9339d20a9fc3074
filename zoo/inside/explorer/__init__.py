"""The explorer: a page that shows several models side by side on a text that is typed.

`views` has the contents, plain functions of models and texts; `page` the layout.
"""

from .models import explored, shipped_models
from .page import build_page, find_reports, launch, publish

__all__ = ["build_page", "explored", "find_reports", "launch", "publish", "shipped_models"]
