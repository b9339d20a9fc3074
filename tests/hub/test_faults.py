"""Every fault at every request, as `matrix` tries them: a cross-section by default, all others every night."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from zoo.hub import RetryPolicy

from .conftest import Start, checkpoint, without_attributes, write
from .faults import Fault
from .loopback import LoopbackHub
from .matrix import ACTIONS, Lane, open_lanes, try_all

pytestmark = pytest.mark.thorough


STEP = 31
"""How far apart the faults of the cross-section are: without a factor in common with the number of faults at a request,
so that it meets every kind both once and for ever, each at several requests."""


@pytest.fixture(scope="module", params=[True, False], ids=["with-xet", "without"])
def lanes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Lane]]:
    with open_lanes(tmp_path_factory.mktemp("lanes"), xet=request.param) as made:
        yield made


@pytest.mark.parametrize(
    "sampled", [True, pytest.param(False, marks=[pytest.mark.slow, pytest.mark.nightly])], ids=["some", "others"]
)
@pytest.mark.parametrize("action", ACTIONS)
def test_faults(lanes: list[Lane], action: str, sampled: bool) -> None:
    requests, outcomes = try_all(lanes, ACTIONS[action], lambda place: (place % STEP == 0) is sampled)
    print(f"\n{action}: {requests} requests, {sum(outcomes.values())} faults: {dict(outcomes)}")


@pytest.mark.parametrize("kind", ["lost", "reset", "truncated", "flipped"])
def test_a_lost_answer_to_a_commit_does_not_commit_twice(
    hub: LoopbackHub, worker: Start, tmp_path: Path, kind: str
) -> None:
    before = hub.storage.put("org/model", checkpoint(b"old"))
    fault = hub.add(Fault(kind, where="POST .*/commit/", times=1))
    answer = worker().ok("push", write(tmp_path / "model", checkpoint(b"new")), "org/model")
    assert fault.happened == 1
    head = hub.storage.repo("org/model")["refs"]["main"]
    assert answer["commit"] == head and hub.storage.history(hub.storage.repo("org/model"), "main")[1] == before
    assert without_attributes(hub.storage.contents("org/model")) == checkpoint(b"new")


def test_a_lost_answer_to_a_pull_request_does_not_open_two(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    hub.storage.put("org/model", checkpoint(b"old"))
    fault = hub.add(Fault("lost", where="POST .*/commit/", times=1))
    answer = worker().ok("push", write(tmp_path / "model", checkpoint(b"new")), "org/model", create_pr=True)
    assert fault.happened == 1
    assert answer["pull_request"] == f"{hub.endpoint}/org/model/discussions/1"
    assert [ref for ref in hub.storage.repo("org/model")["refs"] if ref.startswith("refs/pr/")] == ["refs/pr/1"]


@pytest.mark.parametrize("where", ["GET /xorb/", "POST /v1/xorbs/", "POST /v2/shards"])
def test_a_stall_of_xet_storage_is_waited_for_as_often_as_said(
    hub: LoopbackHub, worker: Start, tmp_path: Path, where: str
) -> None:
    hub.storage.put("org/model", checkpoint(b"stalled"))
    hub.add(Fault("stall", where=where))
    folder = write(tmp_path / "model", checkpoint(where.encode()))
    answer = worker()("pull", "org/model") if "GET" in where else worker()("push", folder, "org/model")
    assert answer["error"] == "HubUnreachableError", answer
    assert sum(request.startswith(where) for request in hub.log) == RetryPolicy().attempts


def test_xet_storage_that_takes_no_list_of_blocks_does_not_hold_a_push_up(
    hub: LoopbackHub, worker: Start, tmp_path: Path
) -> None:
    """hf_xet has no time-out for its list in the first version, to which it goes back where a Hub lacks the second."""
    before = hub.storage.put("org/model", checkpoint())
    old_hub = {"kind": "missing", "where": "POST /v2/shards"}
    hub.add(Fault(**old_hub))
    stalled = hub.add(Fault("stall", where="POST /v1/shards"))
    folder, push = write(tmp_path / "model", checkpoint(b"stalled")), worker()
    begun = time.monotonic()
    push.refused("HubUnreachableError", "nothing was committed", "push", folder, "org/model", first_wait=0.01)
    assert stalled.happened == 1 and time.monotonic() - begun < 20
    assert hub.storage.repo("org/model")["refs"]["main"] == before
    hub.clear()
    hub.add(Fault(**old_hub))
    assert push("push", folder, "org/model")["error"] is None
    assert without_attributes(hub.storage.contents("org/model")) == checkpoint(b"stalled")


@pytest.mark.parametrize("where", ["GET .*/tree/", "POST .*/preupload/", "HEAD .*/config.json", "GET .*/config.json"])
def test_a_hub_that_is_busy_for_an_hour_is_not_waited_for(
    hub: LoopbackHub, worker: Start, tmp_path: Path, where: str
) -> None:
    hub.storage.put("org/model", checkpoint())
    hub.add(Fault("hour", where=where))
    folder = write(tmp_path / "model", checkpoint(b"busy"))
    answer = worker()("push", folder, "org/model") if "POST" in where else worker()("pull", "org/model")
    assert answer["error"] == "HubUnreachableError" and "asks to wait 3600 s" in answer["message"], answer
