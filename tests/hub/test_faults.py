"""Every fault at every request of a push and of a pull.

Whatever happens, the result is complete and verified, or an error of the zoo's own with the old state in place on both
sides, and the next attempt succeeds. The default run tries a cross-section; the rest of the matrix is marked slow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from .conftest import WRITE, Lane, Worker, checkpoint, without_attributes, write
from .faults import KINDS, Fault
from .loopback import LoopbackHub
from .test_pull import digests

Start = Callable[..., Worker]

OLD, NEW = checkpoint(b"old"), checkpoint(b"new")
FOR_EVER = (1, 1_000_000)
names = count()

STEP = 13
"""How far apart the faults of the cross-section are: without a factor in common with 16 it meets every kind both once
and for ever, each at several requests."""


class Tally:
    """Counts what was tried, and how it ended."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()

    def note(self, answer: dict[str, Any]) -> None:
        if answer["error"] is None:
            self.outcomes["completed"] += 1
        elif "was made" in answer["message"]:
            self.outcomes["completed, and said that it could not be confirmed"] += 1
        else:
            self.outcomes["failed with the old state intact"] += 1

    def report(self, what: str) -> None:
        tried = sum(self.outcomes.values())
        print(f"\n{what}: {tried} faults tried, {tried} survived: {dict(self.outcomes)}")


def check_error(answer: dict[str, Any]) -> None:
    assert not answer["error"].startswith("UNTRANSLATED"), answer["traceback"]
    assert "\n" not in answer["message"], answer
    assert WRITE not in answer["message"] + answer["traceback"]


def try_push(hub: LoopbackHub, process: Worker, folder: Path, fault: Fault | None, **options: Any) -> dict[str, Any]:
    """Push onto an older model under a fault, and check both sides."""
    repo_id = f"org/push-{next(names)}"
    before = hub.storage.put(repo_id, OLD)
    hub.storage.forget(NEW["model.safetensors"])
    hub.clear()
    if fault is not None:
        hub.add(fault)
    answer = process("push", folder, repo_id, **options)
    requests = list(hub.log)
    hub.clear()
    repo = hub.storage.repo(repo_id)
    head, history = repo["refs"]["main"], hub.storage.history(repo, "main")
    if answer["error"] is None:
        assert history[1] == before, "a push must be one commit"
        assert answer["ok"]["commit"] == head
        assert without_attributes(hub.storage.contents(repo_id)) == NEW
    elif answer["error"] == "IntegrityError":
        # The commit was made, but a list that is never right cannot confirm it: all that is left is to say so.
        check_error(answer)
        assert fault is not None and fault.kind == "flipped" and "tree" in fault.where and head in answer["message"]
        assert without_attributes(hub.storage.contents(repo_id)) == NEW
    else:
        check_error(answer)
        assert head == before, f"{fault}: {answer['message']}"
        assert process("push", folder, repo_id)["error"] is None, "the next attempt must succeed"
    return {**answer, "requests": requests}


def try_first_push(hub: LoopbackHub, process: Worker, folder: Path, fault: Fault | None) -> dict[str, Any]:
    """Push to a branch of a repository that does not exist, under a fault, and check both sides."""
    repo_id = f"org/first-{next(names)}"
    hub.storage.forget(NEW["model.safetensors"])
    hub.clear()
    if fault is not None:
        hub.add(fault)
    answer = process("push", folder, f"{repo_id}@v1")
    requests = list(hub.log)
    hub.clear()
    repo = hub.storage.repo(repo_id)
    pushed = repo is not None and "v1" in repo["refs"] and len(hub.storage.history(repo, "v1")) > 1
    if answer["error"] is None or answer["error"] == "IntegrityError":
        assert len(hub.storage.history(repo, "v1")) == 2
        assert without_attributes(hub.storage.contents(repo_id, "v1")) == NEW
    else:
        check_error(answer)
        assert not pushed, f"{fault}: {answer['message']}"
        assert process("push", folder, f"{repo_id}@v1")["error"] is None, "the next attempt must succeed"
    return {**answer, "requests": requests}


def try_pull(hub: LoopbackHub, process: Worker, cache: Path, fault: Fault | None) -> dict[str, Any]:
    """Pull a newer model under a fault, and check the cache."""
    repo_id = f"org/pull-{next(names)}"
    hub.storage.put(repo_id, OLD)
    assert process("pull", repo_id, cache_dir=cache)["error"] is None
    hub.storage.put(repo_id, NEW)
    hub.clear()
    if fault is not None:
        hub.add(fault)
    answer = process("pull", repo_id, cache_dir=cache)
    requests = list(hub.log)
    hub.clear()
    offline = process("pull", repo_id, cache_dir=cache, offline=True)
    if answer["error"] is None:
        assert answer["ok"]["files"] == digests(NEW)
        assert offline["ok"]["files"] == digests(NEW)
    else:
        check_error(answer)
        assert offline["ok"]["files"] == digests(OLD), f"{fault}: {answer['message']}"
        assert process("pull", repo_id, cache_dir=cache)["ok"]["files"] == digests(NEW)
    assert not list(cache.rglob("*.incomplete"))
    return {**answer, "requests": requests}


def faults_at(requests: list[str]) -> list[Fault]:
    """Every kind of fault at every request, once and for ever."""
    return [
        Fault(kind, at=place if times == 1 else 0, times=times, where="" if times == 1 else pattern(request))
        for place, request in enumerate(requests, start=1)
        for kind in KINDS
        for times in FOR_EVER
    ]


def pattern(request: str) -> str:
    """What matches a request, and the same one for other repositories and contents."""
    method, path = request.split(" ")
    ending = path.rpartition("/")[2]
    if "/resolve/" in path:
        return rf"^{method} .*/resolve/.*/{ending}$"
    for part in ("/tree/", "/preupload/", "/commit/", "/commits/", "/revision/", "/branch/", "/large/", "/upload/"):
        if part in path:
            return rf"^{method} .*{part}"
    return rf"^{method} .*/{ending}$"


def try_all(
    lanes: list[Lane], what: str, sampled: bool, attempt: Callable[[Lane, Fault | None], dict[str, Any]]
) -> None:
    """Try a cross-section of the faults of a matrix or all others, several at a time, and tell how they ended."""
    requests = attempt(lanes[0], None)["requests"]
    faults = [fault for place, fault in enumerate(faults_at(requests)) if (place % STEP == 0) is sampled]

    def drive(number: int) -> list[dict[str, Any]]:
        return [attempt(lanes[number], fault) for fault in faults[number :: len(lanes)]]

    tally = Tally()
    with ThreadPoolExecutor(len(lanes)) as pool:
        for answers in pool.map(drive, range(len(lanes))):
            for answer in answers:
                tally.note(answer)
    assert sum(tally.outcomes.values()) == len(faults)
    tally.report(f"{what}, {len(requests)} requests")


def pushed(lane: Lane, fault: Fault | None) -> dict[str, Any]:
    return try_push(lane.hub, lane.worker, write(lane.folder / "model", NEW), fault)


def first_pushed(lane: Lane, fault: Fault | None) -> dict[str, Any]:
    return try_first_push(lane.hub, lane.worker, write(lane.folder / "model", NEW), fault)


def pulled(lane: Lane, fault: Fault | None) -> dict[str, Any]:
    return try_pull(lane.hub, lane.worker, lane.folder / "cache", fault)


@pytest.mark.parametrize("sampled", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["some", "others"])
@pytest.mark.parametrize(
    ("what", "attempt"),
    [("push", pushed), ("push to a new branch of a new repository", first_pushed), ("pull", pulled)],
    ids=["push", "first-push", "pull"],
)
def test_faults(
    lanes: list[Lane], what: str, attempt: Callable[[Lane, Fault | None], dict[str, Any]], sampled: bool
) -> None:
    try_all(lanes, what, sampled, attempt)


@pytest.mark.parametrize("kind", ["lost", "reset", "truncated", "flipped"])
def test_a_lost_answer_to_a_commit_does_not_commit_twice(
    hub: LoopbackHub, worker: Start, tmp_path: Path, kind: str
) -> None:
    fault = Fault(kind, where="POST .*/commit/", times=1)
    answer = try_push(hub, worker(), write(tmp_path / "model", NEW), fault)
    assert answer["error"] is None, answer
    assert fault.happened == 1


def test_a_lost_answer_to_a_pull_request_does_not_open_two(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    hub.storage.put("org/model", OLD)
    fault = hub.add(Fault("lost", where="POST .*/commit/", times=1))
    answer = worker()("push", write(tmp_path / "model", NEW), "org/model", create_pr=True)
    assert answer["error"] is None, answer
    assert fault.happened == 1
    assert answer["ok"]["pull_request"] == f"{hub.endpoint}/org/model/discussions/1"
    assert [ref for ref in hub.storage.repo("org/model")["refs"] if ref.startswith("refs/pr/")] == ["refs/pr/1"]
