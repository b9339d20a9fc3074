import os
from pathlib import Path
from unittest.mock import Mock

import pytest
from preloaded import run_python

from zoo.hub.addresses import Address, parse_address
from zoo.hub.errors import RepoIdError, without_secrets
from zoo.hub.retries import RetryPolicy, passes, persist

pytestmark = pytest.mark.thorough

SHORT = RetryPolicy(attempts=4, first_wait=0.001, longest_wait=0.002)


@pytest.mark.parametrize(
    ("error", "times"),
    [(ValueError("an answer that cannot be read"), SHORT.attempts), (OSError(28, "No space left on device"), 1)],
    ids=["passes", "stays"],
)
def test_what_passes_is_tried_again_and_no_oftener_than_said(error: Exception, times: int) -> None:
    call = Mock(side_effect=error)
    with pytest.raises(type(error), match="cannot be read|No space"):
        persist(call, SHORT)
    assert call.call_count == times
    assert not passes(KeyboardInterrupt())


def test_waits_grow_differ_and_stay_bounded() -> None:
    retry_policy = RetryPolicy(first_wait=1, longest_wait=8)
    error = ValueError()
    for attempt, longest in enumerate((1, 2, 4, 8, 8, 8), start=1):
        waits = {retry_policy.wait(attempt, error) for _ in range(20)}
        assert len(waits) > 1
        assert all(longest / 2 <= wait <= longest for wait in waits)


def test_addresses_are_read() -> None:
    assert parse_address("org/name") == Address("org/name", "main")
    assert parse_address("hf-hub:org/name@v1") == Address("org/name", "v1")
    assert parse_address("org/name", "refs/pr/1") == Address("org/name", "refs/pr/1")
    assert str(parse_address("org/name@v1")) == "org/name@v1"
    with pytest.raises(RepoIdError, match="as well"):
        parse_address("org/name@v1", "v2")


@pytest.mark.parametrize(
    "text", ["a/b/c", "org/na me", "", "org/name@", "org/name@../x", "org/name@a//b", "-/x", "a--b"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(RepoIdError, match="not"):
        parse_address(text)


def test_tokens_are_removed_from_texts() -> None:
    text = "Bearer abc.def\nfor hf_abcdefghijklmnop and my-own-secret"
    cleaned = without_secrets(text, "my-own-secret")
    assert cleaned == "Bearer *** for *** and ***"


NO_HUB = """
import time
import zoo.hub
from zoo.base.errors import ZooError
from zoo.data.tasks.libraries import dataset_splits
begun = time.monotonic()
for ask in (lambda: zoo.hub.pull("org/model"), lambda: zoo.hub.list_hub("org"), lambda: dataset_splits("org/data")):
    try:
        ask()
    except ZooError as error:
        print(error)
print(time.monotonic() - begun)
"""


def test_a_machine_without_a_network_says_so_soon_and_once(tmp_path: Path) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    own = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    done = run_python(["-c", NO_HUB], env={**kept, **own})
    *said, seconds = done.stdout.splitlines()
    assert len(said) == 3 and float(seconds) < 20, done.stdout + done.stderr
    assert "Retrying" not in done.stderr
