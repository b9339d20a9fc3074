"""Answers without an end, and those that unpack to gigabytes, are not read to their end; files not past their size."""

from pathlib import Path

import pytest

from .conftest import Start, Worker, checkpoint, digests, write
from .faults import BOMB, ENDLESS, SAME_PAGE, SIZE, Fault
from .loopback import LoopbackHub
from .matrix import pattern

pytestmark = pytest.mark.thorough


SOCKETS = 48 << 20
"""Bytes that may wait in the buffers of two sockets: Linux lets them grow to 36 MB."""

MOST_READ = (64 << 20) + SOCKETS
"""Bytes of an answer that may leave the Hub: 64 MiB that the zoo reads, and those that wait in buffers."""

NO_XET = {"HF_HUB_DISABLE_XET": "1"}


def act(worker: Worker, verb: str, folder: Path) -> dict[str, object]:
    return worker("push", folder, "org/model") if verb == "push" else worker("pull", "org/model")


@pytest.mark.parametrize("verb", ["push", "pull"])
def test_no_answer_to_any_request_is_read_without_an_end(
    hub: LoopbackHub, worker: Start, tmp_path: Path, verb: str
) -> None:
    process = worker(**NO_XET)
    contents = map(str.encode, map(str, range(1000)))

    def fresh(fault: Fault | None) -> tuple[dict[str, object], str | None]:
        content = next(contents)
        before = hub.storage.put("org/model", checkpoint(content))
        folder = write(tmp_path / "model", checkpoint(b"new" + content))
        hub.clear()
        if fault is not None:
            hub.add(fault)
        return act(process, verb, folder), before

    answer, _ = fresh(None)
    assert answer["error"] is None, answer
    requests = [request for request in dict.fromkeys(map(pattern, hub.log)) if not request.startswith("^HEAD")]
    assert len(requests) >= 6
    for request in requests:
        for kind in (ENDLESS, BOMB):
            fault = Fault(kind, where=request)
            answer, before = fresh(fault)
            assert fault.happened, request
            assert fault.sent / fault.happened < MOST_READ, f"{request}: {fault.sent} bytes"
            landed = hub.storage.repo("org/model")["refs"]["main"] != before
            if answer["error"] is None:
                assert verb == "push" and landed, f"{kind} at {request}: {answer}"
            else:
                assert not str(answer["error"]).startswith("UNTRANSLATED"), answer
                assert verb == "pull" or not landed or "may have been made" in str(answer["message"]), answer
            assert not list(process.cache.rglob("*.incomplete"))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_files_are_not_written_past_their_listed_size(
    hub: LoopbackHub, worker: Start, tmp_path: Path, name: str
) -> None:
    hub.storage.put("org/model", checkpoint())
    where = "GET .*/resolve/.*config.json" if name == "config.json" else "GET /large/"
    fault = hub.add(Fault(ENDLESS, where=where))
    process = worker(**NO_XET)
    process.refused("IntegrityError", "bytes that the Hub lists", "pull", "org/model")
    assert fault.sent / fault.happened < SOCKETS
    hub.clear()
    assert process("pull", "org/model")["ok"]["files"] == digests(checkpoint())


def test_pages_without_an_end_are_given_up(hub: LoopbackHub, worker: Start) -> None:
    hub.storage.put("org/model", {**checkpoint(), "more.txt": b"", "most.txt": b""})
    hub.add(Fault(SAME_PAGE, where="GET .*/tree/"))
    worker().refused("HubError", "64 MiB", "pull", "org/model")
    assert len(hub.log) < 5000


@pytest.mark.parametrize(("name", "message"), [("config.json", "read whole"), ("model.safetensors", "nothing of it")])
def test_files_of_a_listed_size_that_no_disk_has_are_not_begun(
    hub: LoopbackHub, worker: Start, name: str, message: str
) -> None:
    commit = hub.storage.put("org/model", checkpoint())
    repo = hub.storage.repo("org/model")
    entry = repo["commits"][commit]["files"][name]
    for sizes in (entry, entry.get("lfs", entry)):
        sizes["size"] = 1 << 60
    hub.storage.save(repo)
    worker().refused("HubError", message, "pull", "org/model")
    assert not any(name in request or "/xorb/" in request for request in hub.log)


def test_a_size_that_differs_from_the_list_is_refused_before_a_download(hub: LoopbackHub, worker: Start) -> None:
    """hf_xet writes as much as the answer to HEAD promises."""
    hub.storage.put("org/model", checkpoint())
    hub.add(Fault(SIZE, where="HEAD .*/model.safetensors", value=str(1 << 50)))
    worker().refused("IntegrityError", f"{1 << 50} bytes", "pull", "org/model")
    assert not any("/xorb/" in request for request in hub.log)


def test_xet_storage_is_used_where_it_was_asked_for_or_at_the_hub_itself(hub: LoopbackHub, worker: Start) -> None:
    """Because hf_xet reads anything that it is sent, a Hub of another address is asked over HTTP."""
    hub.storage.put("org/model", checkpoint())
    assert worker(HF_HUB_DISABLE_XET="")("pull", "org/model")["ok"]["files"] == digests(checkpoint())
    assert not any("xet" in request or "/xorb/" in request for request in hub.log)
