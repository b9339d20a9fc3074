"""What is pulled is what the Hub has listed, and nothing else on the machine changes."""

import hashlib
from pathlib import Path

import pytest

from .conftest import Start, checkpoint, digests, write
from .faults import ETAG, Fault
from .loopback import LoopbackHub
from .storage import git_id


def damage(file: Path) -> None:
    """Flip the last byte of what a file of the cache links to."""
    blob = file.resolve()
    blob.chmod(0o644)
    blob.write_bytes(blob.read_bytes()[:-1] + b"x")


def test_damage_in_the_cache_is_noticed_offline_and_repaired(hub: LoopbackHub, worker: Start) -> None:
    hub.storage.put("org/model", checkpoint())
    process = worker()
    folder = Path(process("pull", "org/model")["ok"]["folder"])
    damage(folder / "model.safetensors")
    process.refused("IntegrityError", "model.safetensors", "pull", "org/model", offline=True)
    assert process("pull", "org/model")["ok"]["files"] == digests(checkpoint())


def test_a_repository_that_always_sends_damage_is_refused(hub: LoopbackHub, worker: Start) -> None:
    hub.storage.put("org/model", checkpoint())
    hub.add(Fault("flipped", where="GET /xorb/"))
    process = worker()
    process.refused("IntegrityError", "model.safetensors", "pull", "org/model")
    hub.clear()
    assert process("pull", "org/model", offline=True)["error"] == "HubAccessError"
    assert process("pull", "org/model")["ok"]["files"] == digests(checkpoint())


WRONG_NAMES = ("an absolute path", "another file", "another commit's file", "no checksum")


@pytest.mark.parametrize("kind", WRONG_NAMES)
@pytest.mark.parametrize("where", ["HEAD .*/model.safetensors", "HEAD .*/resolve/"], ids=["weights", "every file"])
def test_files_that_go_by_a_wrong_name_are_refused_before_they_are_downloaded(
    hub: LoopbackHub, worker: Start, tmp_path: Path, kind: str, where: str
) -> None:
    treasure = write(tmp_path, {"treasure": b"the user's own"}) / "treasure"
    old, new = checkpoint(b"old"), checkpoint(b"new")
    first = hub.storage.put("org/model", old)
    process = worker()
    assert process("pull", "org/model")["error"] is None
    names = (str(treasure), git_id(new["README.md"]), hashlib.sha256(old["model.safetensors"]).hexdigest(), "../../x")
    hub.storage.put("org/model", new)
    hub.add(Fault(ETAG, where=where, value=f'"{dict(zip(WRONG_NAMES, names, strict=True))[kind]}"'))
    process.refused("IntegrityError", "nothing of it was downloaded", "pull", "org/model")
    hub.clear()
    assert treasure.read_bytes() == b"the user's own"
    for revision in ("main", first):
        assert process("pull", "org/model", revision=revision, offline=True)["ok"]["files"] == digests(old)
    assert process("pull", "org/model")["ok"]["files"] == digests(new)


def test_links_to_another_file_are_mended_without_touching_it(hub: LoopbackHub, worker: Start) -> None:
    hub.storage.put("org/model", checkpoint())
    process = worker()
    folder = Path(process("pull", "org/model")["ok"]["folder"])
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").symlink_to((folder / "config.json").readlink())
    assert process("pull", "org/model")["ok"]["files"] == digests(checkpoint())


def test_a_xet_file_that_another_repository_shares_is_not_replaced(hub: LoopbackHub, worker: Start) -> None:
    theirs = hub.storage.put("org/theirs", checkpoint(b"theirs"))
    hub.storage.put("org/model", checkpoint(b"mine!!"))
    process = worker()
    assert process("pull", "org/theirs")["error"] is None
    repos = {name: hub.storage.repo(f"org/{name}") for name in ("theirs", "model")}
    weights = repos["theirs"]["commits"][theirs]["files"]["model.safetensors"]
    for commit in repos["model"]["commits"].values():
        if "model.safetensors" in commit["files"]:
            commit["files"]["model.safetensors"]["xetHash"] = weights["xetHash"]
    hub.storage.save(repos["model"])
    process.refused("IntegrityError", "model.safetensors", "pull", "org/model")
    assert process("pull", "org/theirs", offline=True)["ok"]["files"] == digests(checkpoint(b"theirs"))


def test_a_commit_that_was_pulled_by_half_is_not_whole_offline(hub: LoopbackHub, worker: Start) -> None:
    commit = hub.storage.put("org/model", checkpoint())
    process = worker()
    hub.add(Fault("500", where="HEAD .*/tokenizer.json"))
    assert process("pull", f"org/model@{commit}")["error"] == "HubUnreachableError"
    hub.clear()
    process.refused("HubAccessError", "not completely", "pull", f"org/model@{commit}", offline=True)
    assert process("pull", f"org/model@{commit}")["error"] is None
    assert process("pull", f"org/model@{commit}", offline=True)["ok"]["files"] == digests(checkpoint())


def test_what_is_downloaded_again_takes_no_place_before_it_is_verified(hub: LoopbackHub, worker: Start) -> None:
    """Two repositories share a blob; one of them is pulled again while the Hub delivers something else."""
    for repo_id in ("org/theirs", "org/model"):
        hub.storage.put(repo_id, checkpoint())
    process = worker()
    for repo_id in ("org/theirs", "org/model"):
        folder = Path(process("pull", repo_id)["ok"]["folder"])
    hub.add(Fault("flipped", where="GET /xorb/"))
    process.refused("IntegrityError", "model.safetensors", "pull", "org/model", force_download=True)
    hub.clear()
    for repo_id in ("org/theirs", "org/model"):
        assert process("pull", repo_id, offline=True)["ok"]["files"] == digests(checkpoint())
    blob = (folder / "model.safetensors").resolve()
    before = blob.stat().st_ino
    assert process("pull", "org/model", force_download=True)["ok"]["files"] == digests(checkpoint())
    assert sum(request.startswith("GET /xorb/") for request in hub.log) == 1
    assert blob.stat().st_ino == before, "the same again replaces nothing"
    damage(folder / "model.safetensors")
    hub.log.clear()
    assert process("pull", "org/model", force_download=True)["ok"]["files"] == digests(checkpoint())
    assert sum(request.startswith("GET /xorb/") for request in hub.log) == 1
    assert not list(process.cache.rglob(".zoo-fresh"))
