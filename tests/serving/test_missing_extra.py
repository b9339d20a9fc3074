"""What is printed where nothing that serves is installed."""

import runpy
import sys

import pytest


def test_what_is_missing_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "starlette", None)
    monkeypatch.setattr(sys, "argv", ["zoo.serving", "llama-style.char-en"])
    with pytest.raises(SystemExit, match=r"^zoo: error: .*transformer-zoo\[serving\]"):
        runpy.run_module("zoo.serving", run_name="__main__")
