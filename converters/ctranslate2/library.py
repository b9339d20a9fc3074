"""Imports CTranslate2, set up for this processor."""

from __future__ import annotations

import os
import platform
from typing import Any

from zoo.fast.int8 import ONEDNN, overflows

from ..errors import require


def library(module: str = "ctranslate2") -> Any:
    """A module of CTranslate2, which takes MKL in place of oneDNN where oneDNN's sums of int8 products overflow."""
    if platform.machine() in ("x86_64", "AMD64") and overflows(ONEDNN):
        os.environ.setdefault("CT2_USE_MKL", "1")  # read once, when it is first imported
    return require("ctranslate2", module)
