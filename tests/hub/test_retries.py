"""Requests that are retried; all sessions of the client follow the policy and verify their downloads."""

import os
from pathlib import Path
from unittest.mock import Mock

import pytest
from preloaded import run_python

from zoo.hub.addresses import Address, parse_address
from zoo.hub.errors import RepoIdError, without_secrets
from zoo.hub.retries import RetryPolicy, passes, persist

from .conftest import checkpoint, environment
from .faults import ETAG, Fault
from .loopback import LoopbackHub

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


def test_a_missing_network_is_reported_soon_and_once(tmp_path: Path) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    own = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    done = run_python(["-c", NO_HUB], env={**kept, **own})
    *lines, seconds = done.stdout.splitlines()
    assert len(lines) == 3 and float(seconds) < 20, done.stdout + done.stderr
    assert "Retrying" not in done.stderr


FACTORY_OF_A_USER = """
import sys
import huggingface_hub
from zoo import hub
from zoo.base.errors import ZooError

Session, seen = type(huggingface_hub.get_session()), []


def factory():
    return Session(event_hooks={"request": [seen.append]}, follow_redirects=True, timeout=None)


def pull(repo_id):
    before = len(seen)
    try:
        hub.pull(repo_id, retry_policy=hub.RetryPolicy(timeout=0.5, attempts=2, first_wait=0.01))
        outcome = "pulled"
    except ZooError as error:
        outcome = type(error).__name__
    print(outcome, "by the user's session" if len(seen) > before else "by the client's session")


if sys.argv[1] == "before":
    huggingface_hub.set_client_factory(factory)
pull("org/one")
if sys.argv[1] == "afterwards":
    huggingface_hub.set_client_factory(factory)
pull("org/two")
huggingface_hub.close_session()  # as the client does when a connection breaks
pull("org/three")
pull("org/four")
"""


@pytest.mark.parametrize("when", ["before", "afterwards"])
def test_a_factory_of_sessions_that_a_user_sets_is_asked_and_its_sessions_are_held_to_the_same(
    hub: LoopbackHub, tmp_path: Path, when: str
) -> None:
    for name in ("one", "two", "three", "four"):
        hub.storage.put(f"org/{name}", checkpoint(name.encode()))
    hub.add(Fault("stall", where="org/three"))
    hub.add(Fault(ETAG, where="HEAD .*org/four/.*config.json", value="/etc/passwd"))
    done = run_python(["-c", FACTORY_OF_A_USER, when], env=environment(hub, tmp_path))
    session = "the client's" if when == "afterwards" else "the user's"
    assert done.stdout.splitlines() == [
        f"pulled by {session} session",
        "pulled by the user's session",
        "HubUnreachableError by the user's session",
        "IntegrityError by the user's session",
    ], done.stdout + done.stderr


def test_sessions_hold_no_more_than_one_hook_of_the_zoo(hub: LoopbackHub, tmp_path: Path) -> None:
    code = "import huggingface_hub; from zoo.hub.client import Hub; Hub(), Hub(); "
    code += "print([len(hooks) for hooks in huggingface_hub.get_session().event_hooks.values()])"
    done = run_python(["-c", code], env=environment(hub, tmp_path))
    assert done.stdout.strip() == "[2, 1]", done.stdout + done.stderr  # the client has one for requests
