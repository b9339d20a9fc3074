"""Every fault at every request of a push and of a pull, with Xet and without, and what must hold under each.

Whatever happens, the result is complete and verified, or an error of the zoo's own with the old state in place on both
sides, and the next attempt succeeds; a commit that cannot be confirmed is reported so.

`python -m hub.matrix` in tests/ tries them all, and writes the table in docs/hub.md.
"""

import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from .conftest import TOKENS, WRITE, Process, Worker, checkpoint, digests, without_attributes, write
from .faults import ETAG, KINDS, Fault
from .loopback import LoopbackHub, loopback_hub
from .storage import git_id

LANES = 3  # How many processes there are with Xet, and how many without

FOR_EVER = (1, 1_000_000)
COMPLETED, UNCHANGED, UNCONFIRMED = "completed", "failed, old state intact", "reported as unconfirmed"
numbers = count()

PAGE = Path(__file__).parents[2] / "docs" / "hub.md"
BEGIN, END = "<!-- faults: begin -->\n", "<!-- faults: end -->"


@dataclass
class Lane:
    """A Hub, a process that knows no other, and a folder, so that several tests' work can run at the same time."""

    hub: LoopbackHub
    worker: Worker
    folder: Path

    @property
    def treasure(self) -> Path:
        """A file of the user's that no Hub may touch."""
        return self.folder / "treasure"


@contextmanager
def open_lanes(folder: Path, *, xet: bool) -> Iterator[list[Lane]]:
    """Several of them: most of a fault's time is spent waiting."""
    with ExitStack() as stack:
        made = []
        for number in range(LANES):
            place = folder / f"lane-{number}-{xet}"
            hub = stack.enter_context(loopback_hub(place / "hub"))
            hub.users.update(TOKENS)
            process = Process(hub, place / "home", **({} if xet else {"HF_HUB_DISABLE_XET": "1"}))
            stack.callback(process.close)
            made.append(Lane(hub, Worker(process, place / "cache", WRITE), place))
            made[-1].treasure.write_bytes(b"the user's own")
        yield made


def check_error(answer: dict[str, Any]) -> None:
    assert not answer["error"].startswith("UNTRANSLATED"), answer["traceback"]
    assert "\n" not in answer["message"], answer
    assert WRITE not in answer["message"] + answer["traceback"]


def under(hub: LoopbackHub, fault: Fault | None, act: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Do something under a fault; return how it ended, and the requests that it made."""
    hub.clear()
    if fault is not None:
        hub.add(fault)
    answer = act()
    requests = list(hub.log)
    hub.clear()
    if answer["error"] is not None:
        check_error(answer)
    return answer, requests


def push(lane: Lane, fault: Fault | None, *, first: bool = False) -> tuple[str, list[str]]:
    """Push onto an older model, or to a new branch of a new repository, and check both sides."""
    number, hub = next(numbers), lane.hub
    repo_id, branch = f"org/push-{number}", "v1" if first else "main"
    old, new = checkpoint(b"old"), checkpoint(b"new %d" % number)
    before = None if first else hub.storage.put(repo_id, old)
    folder = write(lane.folder / "model", new)

    def act() -> dict[str, Any]:
        return lane.worker("push", folder, f"{repo_id}@{branch}")

    answer, requests = under(hub, fault, act)
    repo = hub.storage.repo(repo_id)
    history = hub.storage.history(repo, branch) if repo is not None and branch in repo["refs"] else []
    landed = len(history) > 1 and history[0] != before
    if landed:
        assert len(history) == (2 if first else 3) and before in (None, history[1]), "a push must be one commit"
        assert without_attributes(hub.storage.contents(repo_id, branch)) == new
    if answer["error"] is None:
        assert landed and (answer["ok"]["commit"] == history[0] or fault is None or fault.kind == "flipped"), answer
        return COMPLETED, requests
    if answer["error"] == "UnconfirmedCommitError" or (landed and answer["error"] == "IntegrityError"):
        assert "may have been made or not" in answer["message"] or history[0] in answer["message"], answer
        outcome = UNCONFIRMED
    else:
        assert not landed, f"{fault}: {answer['message']}"
        outcome = UNCHANGED
    assert act()["error"] is None, "the next attempt must succeed"
    return outcome, requests


def pull(lane: Lane, fault: Fault | None) -> tuple[str, list[str]]:
    """Pull a newer model, and check the cache."""
    number, hub, worker = next(numbers), lane.hub, lane.worker
    repo_id = f"org/pull-{number}"
    old, new = checkpoint(b"old %d" % number), checkpoint(b"new %d" % number)
    hub.storage.put(repo_id, old)
    assert worker("pull", repo_id)["error"] is None
    hub.storage.put(repo_id, new)
    if fault is not None and fault.kind == ETAG:
        names = {"path": str(lane.treasure), "same": "0" * 40, "other": git_id(old["config.json"])}
        fault.value = f'"{names.get(fault.value, fault.value)}"'
    answer, requests = under(hub, fault, lambda: worker("pull", repo_id))
    offline = worker("pull", repo_id, offline=True)
    expected = new if answer["error"] is None else old
    assert offline["ok"] and offline["ok"]["files"] == digests(expected), f"{fault}: {answer} {offline}"
    assert lane.treasure.read_bytes() == b"the user's own"
    if answer["error"] is None:
        assert answer["ok"]["files"] == digests(new)
    else:
        assert worker("pull", repo_id)["ok"]["files"] == digests(new), "the next attempt must succeed"
    assert not list(worker.cache.rglob("*.incomplete"))
    return COMPLETED if answer["error"] is None else UNCHANGED, requests


Attempt = Callable[[Lane, Fault | None], tuple[str, list[str]]]
ACTIONS: dict[str, Attempt] = {
    "push onto an older model": push,
    "push to a new branch of a new repository": partial(push, first=True),
    "pull of a newer model": pull,
}


def faults_at(requests: list[str]) -> list[Fault]:
    """Every kind of fault at every request, once and for ever; and a Hub that is gone from a request on."""
    made = []
    for place, request in enumerate(requests, start=1):
        named = [(ETAG, name) for name in ("path", "same", "other")] if request.startswith("HEAD") else []
        for kind, value in [*((kind, "") for kind in KINDS), *named]:
            for times in FOR_EVER:
                where = {"at": place} if times == 1 else {"where": pattern(request)}
                made.append(Fault(kind, times=times, value=value, **where))  # type: ignore[arg-type]
        made.extend(Fault(kind, since=place) for kind in ("disconnect", "403", "hour"))
    return made


def pattern(request: str) -> str:
    """What matches a request, and the same one for other repositories and contents."""
    method, path = request.split(" ")
    known = re.sub(r"[0-9a-f]{40,64}", "[0-9a-f]+", path)
    return rf"^{method} {re.sub(r'org/(push|pull)-[0-9]+', 'org/[^/]+', known)}$"


def try_all(lanes: list[Lane], attempt: Attempt, keep: Callable[[int], bool]) -> tuple[int, Counter[tuple[str, str]]]:
    """Try faults, several at a time; return the number of requests, and how many faults of each kind ended how."""
    _, requests = attempt(lanes[0], None)
    faults = [fault for place, fault in enumerate(faults_at(requests)) if keep(place)]

    def drive(number: int) -> list[tuple[str, str]]:
        return [(fault.kind, attempt(lanes[number], fault)[0]) for fault in faults[number :: len(lanes)]]

    with ThreadPoolExecutor(len(lanes)) as pool:
        outcomes = [outcome for some in pool.map(drive, range(len(lanes))) for outcome in some]
    assert len(outcomes) == len(faults)
    return len(requests), Counter(outcomes)


def write_table() -> None:
    """Try everything, and write what came out into docs/hub.md."""
    rows = []
    for xet in (True, False):
        with tempfile.TemporaryDirectory() as folder, open_lanes(Path(folder), xet=xet) as lanes:
            for action, attempt in ACTIONS.items():
                requests, outcomes = try_all(lanes, attempt, lambda place: True)
                print(action, xet, requests, dict(outcomes), file=sys.stderr, flush=True)
                for kind in (*KINDS, ETAG):
                    ended = [outcomes[kind, outcome] for outcome in (COMPLETED, UNCHANGED, UNCONFIRMED)]
                    if any(ended):
                        cells = [action, "on" if xet else "off", kind, sum(ended), *ended, "held"]
                        rows.append("| " + " | ".join(map(str, cells)) + " |")
    heading = ["what", "Xet", "fault", "tried", COMPLETED, UNCHANGED, UNCONFIRMED, ""]
    lines = [
        f"Written on {time.strftime('%Y-%m-%d')}.",
        "",
        "| " + " | ".join(heading) + " |",
        "|---|---|---|" + "---:|" * 4 + "---|",
    ]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n".join([*lines, *rows]) + "\n" + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    write_table()
