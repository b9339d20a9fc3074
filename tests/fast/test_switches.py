"""Switches of fast paths: whose they are, and their former names."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from zoo.base.errors import DeprecatedNameWarning, InputError
from zoo.fast import fast_paths
from zoo.fast.switches import RENAMED, current


def test_modes_are_a_thread_s_own():
    """What another thread begins or ends in between changes nothing, whatever the order."""
    begun, ended, seen = threading.Event(), threading.Event(), []

    def other():
        seen.append(current().unpadding)
        with fast_paths(unpadding="always"):
            begun.set()
            assert ended.wait(60)
            seen.append(current().unpadding)

    thread = threading.Thread(target=other)
    with fast_paths(unpadding="never"):
        thread.start()
        assert begun.wait(60)
        assert current().unpadding == "never"
    assert current().unpadding == "auto"
    ended.set()
    thread.join()
    assert seen == ["auto", "always"] and current().unpadding == "auto"


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_former_names_are_understood(old, new):
    with (
        pytest.warns(DeprecatedNameWarning, match=f"{old} is called {new} now") as warned,
        fast_paths(**{old: "never"}),
    ):
        assert getattr(current(), new) == "never"
    assert warned[0].filename == __file__


def test_variables_are_read_by_both_names():
    code = "from zoo.fast.switches import current; print(current().graph_capture, current().prepacked_weights)"
    variables = {"ZOO_RECORDED_STEPS": "never", "ZOO_PREPACKED_WEIGHTS": "always"}
    run = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["never", "always"]
    assert "ZOO_RECORDED_STEPS is called ZOO_GRAPH_CAPTURE now" in run.stderr


def test_other_words_are_refused():
    with (
        pytest.raises(InputError, match="graph_capture='sometimes'; valid: auto, always, never"),
        fast_paths(graph_capture="sometimes"),
    ):
        pass
