"""Pulling into a folder of the user's own."""

import json
import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from preloaded import call_in_fork

from zoo.base.errors import OutputExistsError
from zoo.hub.delivery import deliver

from .conftest import Start, checkpoint, digests, write
from .loopback import LoopbackHub

KILLED = 9


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


def test_a_foreign_folder_is_left_alone(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    hub.storage.put("org/model", checkpoint())
    folder = write(tmp_path / "out", {"config.json": b"mine"})
    worker().refused("OutputExistsError", "not empty", "pull", "org/model", local_dir=folder)
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
        process.refused("OutputExistsError", path, "pull", "org/model", local_dir=folder)
        assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before
        hub.storage.commit("org/model", "main", {path: None}, "remove")
    assert process("pull", "org/model", local_dir=folder)["error"] is None
    assert (folder / "notes.txt").read_bytes() == b"mine" and not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("path", ["model.safetensors", "config.json", "gone.txt"])
def test_a_file_that_was_changed_after_a_pull_is_not_replaced(path: str, tmp_path: Path) -> None:
    old = write(tmp_path / "old", {**checkpoint(b"old"), "gone.txt": b"1"})
    new, folder = write(tmp_path / "new", checkpoint(b"new")), tmp_path / "out"
    deliver(old, content(old), folder, "old")
    write(folder, {path: b"trained further"})
    with pytest.raises(OutputExistsError, match=f"{path}, .* changed since"):
        deliver(new, content(new), folder, "new")
    assert content(folder) == {**content(old), path: b"trained further"}
    (folder / path).unlink()
    deliver(new, content(new), folder, "new")
    assert content(folder) == content(new)


def test_a_record_without_hashes_is_read(tmp_path: Path) -> None:
    old, new = write(tmp_path / "old", checkpoint(b"old")), write(tmp_path / "new", checkpoint(b"new"))
    folder = write(tmp_path / "out", checkpoint(b"old"))
    (folder / ".zoo-pull.json").write_text(json.dumps({"source": "old", "files": sorted(content(old))}))
    deliver(new, content(new), folder, "new")
    assert content(folder) == content(new)


def test_a_repository_may_hold_the_record_of_a_pull(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    theirs = {".zoo-pull.json": b'{"files": ["../x"]}', ".zoo-pull/journal.json": b'{"stale": ["config.json"]}'}
    hub.storage.put("org/model", {**checkpoint(), **theirs})
    for _ in range(2):
        answer = worker().ok("pull", "org/model", local_dir=tmp_path / "out")
        assert {**answer["files"], ".zoo-pull.json": ""} == {**digests(checkpoint()), ".zoo-pull.json": ""}


def test_two_processes_deliver_into_one_folder_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins while the first copies."""
    old, new = (write(tmp_path / name, checkpoint(name.encode())) for name in ("old", "new"))
    folder, copyfile = tmp_path / "out", shutil.copyfile
    second = Thread(target=lambda: deliver(new, content(new), folder, "new"))

    def copy_and_begin(*arguments: Any) -> Any:
        if second.ident is None:
            second.start()
            second.join(0.2)
        return copyfile(*arguments)

    monkeypatch.setattr(shutil, "copyfile", copy_and_begin)
    deliver(old, content(old), folder, "old")
    second.join(60)
    assert content(folder) == content(new)
    assert sorted(file.name for file in folder.glob(".*")) == [".zoo-pull.json"]


def die_at(fatal: int) -> None:
    """Let this process end before the given call of those that change a folder, as if it were killed."""
    calls = count(1)

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(calls) == fatal:
                os._exit(KILLED)
            return function(*arguments, **options)

        return call

    os.replace, shutil.copyfile, Path.unlink = map(counted, (os.replace, shutil.copyfile, Path.unlink))  # type: ignore


@pytest.mark.thorough
def test_a_pull_that_was_killed_leaves_one_version_or_none_and_the_next_finishes_it(tmp_path: Path) -> None:
    old = write(tmp_path / "old", {**checkpoint(b"old"), "gone.txt": b"1"})
    new = write(tmp_path / "new", {**checkpoint(b"new"), "deep/added.txt": b"2"})
    ends = set()
    for fatal in range(1, 100):
        folder = tmp_path / f"out-{fatal}"
        deliver(old, content(old), folder, "old")
        write(folder, {"mine.txt": b"mine"})
        killed = call_in_fork(lambda: (die_at(fatal), deliver(new, content(new), folder, "new"))) == KILLED  # noqa: B023
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
