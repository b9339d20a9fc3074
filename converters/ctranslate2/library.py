"""Imports CTranslate2, set up for this processor."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

from zoo.base.errors import ConfigError
from zoo.fast.int8 import ONEDNN, overflows

from ..errors import require


def library(module: str = "ctranslate2") -> Any:
    """A module of CTranslate2, which takes MKL in place of oneDNN where oneDNN's sums of int8 products overflow."""
    if sums_overflow() and "ctranslate2" not in sys.modules:
        os.environ.setdefault("CT2_USE_MKL", "1")  # read once, when it is first imported
    return require("ctranslate2", module)


def sums_overflow() -> bool:
    """Whether oneDNN's sums of int8 products overflow on this processor."""
    return platform.machine() in ("x86_64", "AMD64") and overflows(ONEDNN)


def check_products(compute_type: str) -> None:
    """Refuse integer weights where a program has imported CTranslate2 before the zoo could ask for MKL."""
    if compute_type.startswith("int") and sums_overflow() and os.environ.get("CT2_USE_MKL") != "1":
        raise ConfigError(
            f"CTranslate2 was imported before the zoo, and would compute {compute_type} with sums that overflow on "
            f"this processor (CT2_USE_MKL={os.environ.get('CT2_USE_MKL')!r}); set CT2_USE_MKL=1 before it is imported"
        )
