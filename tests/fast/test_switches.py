"""Switches of fast paths: a thread's own, or read from the environment."""

import subprocess
import sys
import threading

import pytest

from zoo.base.errors import InputError
from zoo.fast import fast_paths
from zoo.fast.switches import current


def test_modes_are_a_thread_s_own():
    """Blocks that another thread begins or ends in between change nothing, in any order."""
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


def test_variables_are_read():
    code = "from zoo.fast.switches import current; print(current().graph_capture, current().prepacked_weights)"
    variables = {"ZOO_GRAPH_CAPTURE": "never", "ZOO_PREPACKED_WEIGHTS": "always"}
    run = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["never", "always"]


def test_other_words_are_refused():
    with (
        pytest.raises(InputError, match="graph_capture='sometimes'; valid: auto, always, never"),
        fast_paths(graph_capture="sometimes"),
    ):
        pass
