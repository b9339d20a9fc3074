"""All sessions of the client follow the retry policy and check what they download."""

from pathlib import Path

import pytest
from preloaded import run_python

from .conftest import checkpoint, environment
from .faults import ETAG, Fault
from .loopback import LoopbackHub

pytestmark = pytest.mark.thorough

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
    whose = "the client's" if when == "afterwards" else "the user's"
    assert done.stdout.splitlines() == [
        f"pulled by {whose} session",
        "pulled by the user's session",
        "HubUnreachableError by the user's session",
        "IntegrityError by the user's session",
    ], done.stdout + done.stderr


def test_sessions_hold_no_more_than_one_hook_of_the_zoo(hub: LoopbackHub, tmp_path: Path) -> None:
    code = "import huggingface_hub; from zoo.hub.client import Hub; Hub(), Hub(); "
    code += "print([len(hooks) for hooks in huggingface_hub.get_session().event_hooks.values()])"
    done = run_python(["-c", code], env=environment(hub, tmp_path))
    assert done.stdout.strip() == "[2, 1]", done.stdout + done.stderr  # the client has one for requests
