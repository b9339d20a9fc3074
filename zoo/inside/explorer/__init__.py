"""The explorer: models beside each other on a page, on what somebody types.

`views` says what is shown, plain functions of models and texts; `page` how.
"""

from .models import explored, shipped_models
from .page import build_page, find_reports, launch, publish

__all__ = ["build_page", "explored", "find_reports", "launch", "publish", "shipped_models"]
