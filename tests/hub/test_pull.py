import json
from pathlib import Path

import pytest

from .conftest import READ, STRANGER, Start, checkpoint, digests, safetensors
from .faults import Fault
from .loopback import LoopbackHub


def test_a_pull_brings_the_model_and_no_other_format_of_it(hub: LoopbackHub, worker: Start) -> None:
    other = {"pytorch_model.bin": b"pickle", "tf_model.h5": b"1", "onnx/model.onnx": b"1", "modeling_x.py": b"print()"}
    hub.storage.put("org/model", {**checkpoint(), **other})
    answer = worker().ok("pull", "org/model")
    assert answer["files"] == digests(checkpoint())
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
    worker().refused("RevisionMissingError", "did you mean 'main'", "pull", "org/model@mian")


@pytest.mark.parametrize(
    ("repo_id", "token", "words"),
    [
        ("org/nothing", READ, "does not exist, or is private"),
        ("org/private", STRANGER, "does not exist, or is private"),
        ("org/private", "", "no valid token"),
        ("org/gated", STRANGER, "is gated: ask for access"),
        ("org/data", READ, "does not exist, or is private"),
    ],
)
def test_what_may_not_be_seen_is_said_in_one_line(
    hub: LoopbackHub, worker: Start, repo_id: str, token: str, words: str
) -> None:
    hub.storage.put("org/private", checkpoint(), private=True)
    hub.storage.put("org/gated", checkpoint(), gated=True)
    hub.storage.create("org/data", kind="dataset")
    worker(token).refused("HubAccessError", words, "pull", repo_id)


def test_a_private_model_is_there_for_its_owner(hub: LoopbackHub, worker: Start) -> None:
    hub.storage.put("org/private", checkpoint(), private=True)
    assert worker(READ)("pull", "org/private")["error"] is None


def test_offline_finds_what_was_pulled_and_asks_nothing(hub: LoopbackHub, worker: Start) -> None:
    hub.storage.put("org/model", checkpoint())
    snapshot = Path(worker().ok("pull", "org/model")["folder"])
    hub.log.clear()
    assert worker()("pull", "org/model", offline=True)["ok"]["files"] == digests(checkpoint())
    assert worker()("pull", "org/model", offline=True, force_download=True)["error"] == "ConfigError"
    assert worker(HF_HUB_OFFLINE="1")("pull", "org/model")["ok"]["files"] == digests(checkpoint())
    assert worker(HF_HUB_OFFLINE="1")("pull", "org/model", force_download=True)["error"] == "ConfigError"
    worker().refused("HubAccessError", "not in the cache", "pull", "org/other", offline=True)
    assert hub.log == []
    (snapshot / "model.safetensors").unlink()
    worker().refused("HubAccessError", "not completely in the cache", "pull", "org/model", offline=True)


def test_a_hub_that_is_down_is_not_answered_from_the_cache(hub: LoopbackHub, worker: Start) -> None:
    hub.storage.put("org/model", checkpoint())
    process = worker()
    assert process("pull", "org/model")["error"] is None
    hub.add(Fault("500"))
    process.refused("HubUnreachableError", "500", "pull", "org/model")


def test_a_complete_cache_is_not_written_to(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    hub.storage.put("org/model", checkpoint())
    process = worker()
    assert process("pull", "org/model")["error"] is None
    written = {place: place.lstat().st_mtime_ns for place in process.cache.rglob("*")}
    for options in ({}, {"offline": True}):
        assert process("pull", "org/model", **options)["ok"]["files"] == digests(checkpoint())
        assert {place: place.lstat().st_mtime_ns for place in process.cache.rglob("*")} == written


def test_pickles_alone_are_refused(hub: LoopbackHub, worker: Start) -> None:
    hub.storage.put("org/model", {"config.json": b"{}", "pytorch_model.bin": b"pickle"})
    worker().refused("UnsafeWeightsError", "pytorch_model.bin", "pull", "org/model")
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
    wrong = json.dumps({"model_type": "x", "auto_map": ["modeling_x.XModel"]}).encode()
    hub.storage.put("org/wrong", {**files, "config.json": wrong})
    assert process("pull", "org/wrong")["error"] == "RemoteCodeError"


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
    worker(TEST_LARGEST_FILE="65536").refused("HubError", "File too large", "pull", "org/model")
    assert process("pull", "org/model", offline=True)["ok"]["files"] == digests(checkpoint(b"old"))


def test_the_zoos_models_of_an_owner_are_listed(hub: LoopbackHub, worker: Start) -> None:
    for number in range(6):
        hub.storage.put(f"org/model-{number}", checkpoint())
    hub.storage.put("org/other", {"README.md": b"---\nlibrary_name: timm\n---\n"})
    hub.storage.put("stranger/model", checkpoint())
    listed = worker()("list", "org")["ok"]
    assert [model["repo_id"] for model in listed] == [f"org/model-{number}" for number in range(6)]
