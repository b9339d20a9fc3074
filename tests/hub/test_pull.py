from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from zoo.hub.delivery import deliver

from .conftest import READ, STRANGER, Worker, checkpoint, digests, safetensors, write
from .faults import ETAG, Fault
from .loopback import LoopbackHub
from .storage import git_id

Start = Callable[..., Worker]


def test_a_pull_brings_the_model_and_no_other_format_of_it(hub: LoopbackHub, worker: Start) -> None:
    other = {"pytorch_model.bin": b"pickle", "tf_model.h5": b"1", "onnx/model.onnx": b"1", "modeling_x.py": b"print()"}
    hub.storage.put("org/model", {**checkpoint(), **other})
    answer = worker()("pull", "org/model")
    assert answer["error"] is None, answer
    assert answer["ok"]["files"] == digests(checkpoint())
    assert not any(path in request for request in hub.log for path in other)
    assert not hub.authorized_content, "the token left the Hub for the content network"


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub: LoopbackHub, worker: Start) -> None:
    first = hub.storage.put("org/model", checkpoint(b"first"))
    hub.storage.put("org/model", checkpoint(b"second"))
    repo = hub.storage.repo("org/model")
    repo["tags"]["v1"] = repo["refs"]["older"] = first
    hub.storage.save(repo)
    process = worker()
    for name in ("org/model@v1", "org/model@older", f"org/model@{first}", "hf-hub:org/model@v1"):
        assert process("pull", name)["ok"]["files"] == digests(checkpoint(b"first")), name
    assert process("pull", "org/model")["ok"]["files"] == digests(checkpoint(b"second"))


def test_a_missing_revision_names_the_nearest(hub: LoopbackHub, worker: Start) -> None:
    hub.storage.put("org/model", checkpoint())
    answer = worker()("pull", "org/model@mian")
    assert answer["error"] == "RevisionMissingError"
    assert "did you mean 'main'" in answer["message"]


@pytest.mark.parametrize(
    ("repo_id", "token", "says"),
    [
        ("org/nothing", READ, "does not exist, or is private"),
        ("org/private", STRANGER, "does not exist, or is private"),
        ("org/private", "", "no valid token"),
        ("org/gated", STRANGER, "is gated: ask for access"),
        ("org/data", READ, "does not exist, or is private"),
    ],
)
def test_what_may_not_be_seen_is_said_in_one_line(
    hub: LoopbackHub, worker: Start, repo_id: str, token: str, says: str
) -> None:
    hub.storage.put("org/private", checkpoint(), private=True)
    hub.storage.put("org/gated", checkpoint(), gated=True)
    hub.storage.create("org/data", kind="dataset")
    answer = worker(token)("pull", repo_id)
    assert answer["error"] == "HubAccessError", answer
    assert says in answer["message"]
    assert "\n" not in answer["message"]


def test_a_private_model_is_there_for_its_owner(hub: LoopbackHub, worker: Start) -> None:
    hub.storage.put("org/private", checkpoint(), private=True)
    assert worker(READ)("pull", "org/private")["error"] is None


def test_offline_finds_what_was_pulled_and_asks_nothing(hub: LoopbackHub, worker: Start) -> None:
    hub.storage.put("org/model", checkpoint())
    assert worker()("pull", "org/model")["error"] is None
    hub.log.clear()
    assert worker()("pull", "org/model", offline=True)["ok"]["files"] == digests(checkpoint())
    assert worker(HF_HUB_OFFLINE="1")("pull", "org/model")["ok"]["files"] == digests(checkpoint())
    answer = worker()("pull", "org/other", offline=True)
    assert answer["error"] == "HubAccessError" and "not in the cache" in answer["message"]
    assert hub.log == []


def damage(file: Path) -> None:
    """Flip the last byte of what a file of the cache links to."""
    blob = file.resolve()
    blob.chmod(0o644)
    blob.write_bytes(blob.read_bytes()[:-1] + b"x")


def test_offline_notices_damage(hub: LoopbackHub, worker: Start) -> None:
    hub.storage.put("org/model", checkpoint())
    folder = Path(worker()("pull", "org/model")["ok"]["folder"])
    damage(folder / "model.safetensors")
    answer = worker()("pull", "org/model", offline=True)
    assert answer["error"] == "IntegrityError" and "model.safetensors" in answer["message"]


def test_damage_in_the_cache_is_repaired(hub: LoopbackHub, worker: Start) -> None:
    hub.storage.put("org/model", checkpoint())
    process = worker()
    folder = Path(process("pull", "org/model")["ok"]["folder"])
    damage(folder / "model.safetensors")
    assert process("pull", "org/model")["ok"]["files"] == digests(checkpoint())


def test_a_hub_that_is_down_is_not_answered_from_the_cache(hub: LoopbackHub, worker: Start) -> None:
    hub.storage.put("org/model", checkpoint())
    process = worker()
    assert process("pull", "org/model")["error"] is None
    hub.add(Fault("500"))
    answer = process("pull", "org/model")
    assert answer["error"] == "HubUnreachableError", answer
    assert "500" in answer["message"]


def test_a_repository_that_always_sends_damage_is_refused(hub: LoopbackHub, worker: Start) -> None:
    hub.storage.put("org/model", checkpoint())
    hub.add(Fault("flipped", where="GET /xorb/"))
    process = worker()
    answer = process("pull", "org/model")
    assert answer["error"] == "IntegrityError", answer
    assert "model.safetensors" in answer["message"]
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
    answer = process("pull", "org/model")
    assert answer["error"] == "IntegrityError" and "nothing of it was downloaded" in answer["message"], answer
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
    answer = process("pull", "org/model")
    assert answer["error"] == "IntegrityError" and "model.safetensors" in answer["message"], answer
    assert process("pull", "org/theirs", offline=True)["ok"]["files"] == digests(checkpoint(b"theirs"))


def test_a_commit_that_was_pulled_by_half_is_not_whole_offline(hub: LoopbackHub, worker: Start) -> None:
    commit = hub.storage.put("org/model", checkpoint())
    process = worker()
    hub.add(Fault("500", where="HEAD .*/tokenizer.json"))
    assert process("pull", f"org/model@{commit}")["error"] == "HubUnreachableError"
    hub.clear()
    answer = process("pull", f"org/model@{commit}", offline=True)
    assert answer["error"] == "HubAccessError" and "not completely" in answer["message"], answer
    assert process("pull", f"org/model@{commit}")["error"] is None
    assert process("pull", f"org/model@{commit}", offline=True)["ok"]["files"] == digests(checkpoint())


def test_a_complete_cache_is_not_written_to(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    hub.storage.put("org/model", checkpoint())
    process = worker()
    assert process("pull", "org/model")["error"] is None
    written = {place: place.lstat().st_mtime_ns for place in process.cache.rglob("*")}
    for options in ({}, {"offline": True}):
        assert process("pull", "org/model", **options)["ok"]["files"] == digests(checkpoint())
        assert {place: place.lstat().st_mtime_ns for place in process.cache.rglob("*")} == written


def test_a_folder_is_filled_and_kept_up_to_date(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    hub.storage.put("org/model", {**checkpoint(b"first"), "extra/notes.txt": b"1"})
    process, folder = worker(), tmp_path / "out"
    answer = process("pull", "org/model", local_dir=folder)
    assert answer["ok"]["folder"] == str(folder)
    write(folder, {"mine.txt": b"mine"})
    repo = hub.storage.repo("org/model")
    hub.storage.commit("org/model", "main", {"extra/notes.txt": None}, "remove")
    hub.storage.put("org/model", checkpoint(b"second"))
    assert repo is not None
    files = process("pull", "org/model", local_dir=folder)["ok"]["files"]
    files.pop(".zoo-pull.json")
    assert files == digests({**checkpoint(b"second"), "mine.txt": b"mine"})


def test_a_folder_of_somebody_else_is_left_alone(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    hub.storage.put("org/model", checkpoint())
    folder = write(tmp_path / "out", {"config.json": b"mine"})
    answer = worker()("pull", "org/model", local_dir=folder)
    assert answer["error"] == "OutputExistsError" and "not empty" in answer["message"]
    assert (folder / "config.json").read_bytes() == b"mine"


def test_what_is_the_users_own_is_not_replaced(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    hub.storage.put("org/model", checkpoint(b"first"))
    process, folder = worker(), tmp_path / "out"
    assert process("pull", "org/model", local_dir=folder)["error"] is None
    write(folder, {"notes.txt": b"mine", "src": b"a file"})
    (tmp_path / "elsewhere").mkdir()
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    for path in ("notes.txt", "src/notes.txt", "link/notes.txt"):
        hub.storage.put("org/model", {**checkpoint(b"second"), path: b"theirs"})
        answer = process("pull", "org/model", local_dir=folder)
        assert answer["error"] == "OutputExistsError" and path in answer["message"], answer
        assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before
        hub.storage.commit("org/model", "main", {path: None}, "remove")
    assert process("pull", "org/model", local_dir=folder)["error"] is None
    assert (folder / "notes.txt").read_bytes() == b"mine" and not list((tmp_path / "elsewhere").iterdir())


def test_a_repository_may_hold_the_record_of_a_pull(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    theirs = {".zoo-pull.json": b'{"files": ["../x"]}', ".zoo-pull/journal.json": b'{"stale": ["config.json"]}'}
    hub.storage.put("org/model", {**checkpoint(), **theirs})
    for _ in range(2):
        answer = worker()("pull", "org/model", local_dir=tmp_path / "out")
        assert answer["error"] is None, answer
        assert {**answer["ok"]["files"], ".zoo-pull.json": ""} == {**digests(checkpoint()), ".zoo-pull.json": ""}


KILLED_AT = """
import os, sys
from pathlib import Path
import zoo.hub.delivery as delivery
cache, folder, fatal = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
calls = 0
def counted(function):
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == fatal:
            os._exit(9)
        return function(*arguments, **options)
    return call
os.replace, delivery.shutil.copyfile, Path.unlink = map(counted, (os.replace, delivery.shutil.copyfile, Path.unlink))
delivery.deliver(cache, [str(file.relative_to(cache)) for file in cache.rglob("*") if file.is_file()], folder, "x")
"""


def test_a_pull_that_was_killed_leaves_one_version_or_none_and_the_next_finishes_it(tmp_path: Path) -> None:
    old = write(tmp_path / "old", {**checkpoint(b"old"), "gone.txt": b"1"})
    new = write(tmp_path / "new", {**checkpoint(b"new"), "deep/added.txt": b"2"})
    ends = set()
    for fatal in range(1, 100):
        folder = tmp_path / f"out-{fatal}"
        deliver(old, content(old), folder, "old")
        write(folder, {"mine.txt": b"mine"})
        if (child := os.fork()) == 0:
            sys.argv = ["", str(new), str(folder), str(fatal)]
            exec(KILLED_AT, {})
            os._exit(0)
        killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        found = content(folder)
        assert found.pop("mine.txt") == b"mine"
        if "config.json" in found:
            ends.add("old" if found == content(old) else "new")
            assert found in (content(old), content(new)), f"a mixture when killed at call {fatal}"
        deliver(new, content(new), folder, "new")
        assert content(folder) == {**content(new), "mine.txt": b"mine"}
        assert sorted(file.name for file in folder.glob(".*")) == [".zoo-pull.json"]
        if not killed:
            break
    assert ends == {"old", "new"} and fatal > 12


def content(folder: Path) -> dict[str, bytes]:
    found = {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    return {path: content for path, content in found.items() if not path.startswith(".zoo-pull")}


def test_pickles_alone_are_refused(hub: LoopbackHub, worker: Start) -> None:
    hub.storage.put("org/model", {"config.json": b"{}", "pytorch_model.bin": b"pickle"})
    answer = worker()("pull", "org/model")
    assert answer["error"] == "UnsafeWeightsError"
    assert "pytorch_model.bin" in answer["message"]
    assert not any("resolve" in request for request in hub.log)


def test_remote_code_is_refused_by_name_and_can_be_allowed(hub: LoopbackHub, worker: Start) -> None:
    config = {
        "model_type": "x",
        "auto_map": {"AutoModel": "modeling_x.XModel", "AutoConfig": "other/repo--conf.XConfig"},
    }
    files = {"config.json": json.dumps(config).encode(), "model.safetensors": safetensors(a=b"1")}
    hub.storage.put("org/model", {**files, "modeling_x.py": b"raise SystemExit"})
    process = worker()
    answer = process("pull", "org/model")
    assert answer["error"] == "RemoteCodeError"
    assert all(
        name in answer["message"] for name in ("modeling_x.XModel", "other/repo--conf.XConfig", "trust_remote_code")
    )
    allowed = process("pull", "org/model", trust_remote_code=True)["ok"]["files"]
    assert "modeling_x.py" in allowed
    assert process("pull", "org/model", offline=True)["error"] == "RemoteCodeError"


def test_a_missing_plugin_is_named(hub: LoopbackHub, worker: Start) -> None:
    hub.storage.put("org/model", checkpoint(variant="my-norm", provider="zoo-my-norm"))
    process = worker()
    assert process("pull", "org/model")["error"] is None
    assert "pip install zoo-my-norm" in process.process.log.read_text()


def test_several_processes_pull_at_once(hub: LoopbackHub, worker: Start) -> None:
    files = checkpoint(b"x" * 200_000)
    hub.storage.put("org/model", files)
    processes = [worker() for _ in range(3)]
    for process in processes:
        process.start("pull", "org/model")
    for process in processes:
        answer = process.finish()
        assert answer["error"] is None, answer
        assert answer["ok"]["files"] == digests(files)


def test_a_full_disk_is_an_error_of_one_line(hub: LoopbackHub, worker: Start) -> None:
    hub.storage.put("org/model", checkpoint(b"old"))
    process = worker()
    assert process("pull", "org/model")["error"] is None
    hub.storage.put("org/model", checkpoint(b"x" * 100_000))
    answer = worker(TEST_LARGEST_FILE="65536")("pull", "org/model")
    assert answer["error"] == "HubError", answer
    assert "File too large" in answer["message"]
    assert process("pull", "org/model", offline=True)["ok"]["files"] == digests(checkpoint(b"old"))


def test_the_zoos_models_of_an_owner_are_listed(hub: LoopbackHub, worker: Start) -> None:
    for number in range(6):
        hub.storage.put(f"org/model-{number}", checkpoint())
    hub.storage.put("org/other", {"README.md": b"---\nlibrary_name: timm\n---\n"})
    hub.storage.put("stranger/model", checkpoint())
    listed = worker()("list", "org")["ok"]
    assert [model["repo_id"] for model in listed] == [f"org/model-{number}" for number in range(6)]
