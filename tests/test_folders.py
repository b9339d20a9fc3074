"""Folders are written whole or not at all, what the zoo did not write stays, and killed processes leave nothing."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from preloaded import call_in_fork

from zoo.base.errors import OutputExistsError, UnwritableError
from zoo.base.files import without_folders
from zoo.base.folders import check_output, finish_earlier, scratch_folder, written_whole
from zoo.base.manifest import MANIFEST_FILE, recorded


def contents(folder: Path) -> dict[str, str]:
    files = (file for file in folder.rglob("*") if file.is_file() and file.name != MANIFEST_FILE)
    return {str(file.relative_to(folder)): file.read_text() for file in files}


def save(folder: Path, *, force: bool = False, **files: str) -> None:
    """Write files by names with _ for . and __ for /."""
    with written_whole(folder, force=force) as made:
        for name, text in files.items():
            file = made / name.replace("__", "/").replace("_", ".")
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)


OLD = {"config_json": "old", "model_safetensors": "old", "stale__tokenizer_json": "old"}
NEW = {"config_json": "new", "model_safetensors": "new", "README_md": "new"}
NEW_FILES = {"config.json": "new", "model.safetensors": "new", "README.md": "new"}


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), written_whole(tmp_path / "out") as folder:
        (folder / "half").write_text("")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_name_may_begin_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    save(Path("~no-user"), config_json="new")
    if os.name != "nt":
        save(Path("~/in-home"), config_json="new")
        assert (tmp_path / "in-home/config.json").is_file()
    assert (tmp_path / "~no-user/config.json").is_file()


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    save(tmp_path / "out", **OLD)
    before = contents(tmp_path)
    with pytest.raises(RuntimeError), written_whole(tmp_path / "out", force=True) as folder:
        (folder / "config.json").write_text("new")
        raise RuntimeError
    assert contents(tmp_path) == before


def test_force_replaces_what_the_zoo_wrote_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    save(out, **OLD)
    theirs = {"notes.txt": "mine", ".git/HEAD": "mine", "src/main.py": "mine", "stale/mine": "mine"}
    for name, text in theirs.items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text(text)
    (out / "link").symlink_to(tmp_path)
    save(out, force=True, **NEW)
    assert contents(out) == {**NEW_FILES, **theirs} and (out / "link").is_symlink()
    save(out, force=True, config_json="newest")
    assert contents(out) == {"config.json": "newest", **theirs}


@pytest.mark.parametrize(
    ("name", "message"), [("config.json", "no .zoo-manifest.json"), ("README.md", "would replace: README.md")]
)
def test_force_keeps_a_foreign_folder(tmp_path: Path, name: str, message: str) -> None:
    out = tmp_path / "out"
    if name == "README.md":
        save(out, config_json="old")
    out.mkdir(exist_ok=True)
    (out / name).write_text("theirs")
    with pytest.raises(OutputExistsError, match=message):
        check_output(out, force=True)
    with pytest.raises(OutputExistsError, match=message):
        save(out, force=True, **NEW)
    assert contents(out)[name] == "theirs"


def test_force_keeps_what_was_changed_since(tmp_path: Path) -> None:
    save(tmp_path / "out", **OLD)
    (tmp_path / "out" / "config.json").write_text("OLD")
    with pytest.raises(OutputExistsError, match="changed since the zoo wrote them: config.json"):
        check_output(tmp_path / "out", force=True)


def test_a_name_that_turns_out_to_be_taken_is_kept(tmp_path: Path) -> None:
    save(tmp_path / "out", **OLD)
    (tmp_path / "out" / "vocabulary").write_text("theirs")
    before = contents(tmp_path)
    with pytest.raises(OutputExistsError, match="would replace: vocabulary"):
        save(tmp_path / "out", force=True, vocabulary="new")
    assert contents(tmp_path) == before


def test_what_the_zoo_adds_later_is_its_own_too(tmp_path: Path) -> None:
    save(tmp_path / "out", **OLD)
    with recorded(tmp_path / "out"):
        (tmp_path / "out" / "evaluations.json").write_text("numbers")
    save(tmp_path / "out", force=True, **NEW)
    assert contents(tmp_path / "out") == NEW_FILES


@pytest.mark.parametrize("name", ["../mine", "/tmp/mine", "link/mine"])
def test_a_manifest_may_not_name_files_elsewhere(tmp_path: Path, name: str) -> None:
    save(tmp_path / "out", **OLD)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "out" / "link").symlink_to(elsewhere)
    manifest = tmp_path / "out" / MANIFEST_FILE
    manifest.write_text(manifest.read_text().replace("stale/tokenizer.json", name))
    with pytest.raises(OSError, match="not a file of its own folder"):
        check_output(tmp_path / "out", force=True)


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    save(tmp_path / "out", **NEW)
    assert contents(tmp_path / "out") == NEW_FILES


def test_what_was_put_there_meanwhile_is_kept(tmp_path: Path) -> None:
    with pytest.raises(OutputExistsError), written_whole(tmp_path / "out"):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "theirs").write_text("")
    assert contents(tmp_path) == {"out/theirs": ""}


def test_a_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(OutputExistsError, match="is not a folder"):
        save(tmp_path / "out", force=True)


def test_the_current_folder_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputExistsError, match="current folder"):
        save(tmp_path)


def test_a_name_that_libraries_cannot_write_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UnwritableError, match="no UTF-8"):
        check_output(tmp_path / os.fsdecode(b"x\xff"))


@pytest.mark.thorough
def test_a_process_killed_at_any_moment_leaves_old_or_new_and_no_rubbish(tmp_path: Path) -> None:
    calls = ("replace", "rename", "unlink", "mkdir", "rmdir", "chmod")
    for moment in range(100):
        out = tmp_path / str(moment) / "out"
        save(out, **OLD)
        (out / "notes.txt").write_text("mine")

        def save_and_die(out: Path = out, left: int = moment) -> None:
            def dying(call):  # type: ignore[no-untyped-def]
                def wrapper(*args, **kwargs):  # type: ignore[no-untyped-def]
                    nonlocal left
                    left -= 1
                    if left < 0:
                        os._exit(9)
                    return call(*args, **kwargs)

                return wrapper

            for name in calls:
                setattr(os, name, dying(getattr(os, name)))
            save(out, force=True, **NEW)

        status = call_in_fork(save_and_die)
        assert status in (0, 9), moment
        killed = status == 9
        with pytest.raises(OutputExistsError):  # which finishes or clears what was left, and writes nothing
            save(out, **NEW)
        found = contents(out)
        old = {"config.json": "old", "model.safetensors": "old", "stale/tokenizer.json": "old"}
        assert found in ({**old, "notes.txt": "mine"}, {**NEW_FILES, "notes.txt": "mine"}), moment
        assert [path.name for path in out.parent.iterdir()] == ["out"], moment
        check_output(out, force=True)
        shutil.rmtree(out.parent)
        if not killed:
            break
    assert 5 < moment < 100


@pytest.mark.parametrize("before", [True, False])
def test_what_was_taken_for_a_dead_process_begins_again(before: bool, tmp_path: Path, monkeypatch) -> None:
    acquire = FileLock.acquire

    def taken(lock: FileLock) -> Any:
        """Another process clears the temporary folder away before its lock is held, or just before that is known."""
        monkeypatch.undo()
        if before:
            finish_earlier(tmp_path / "out")
            assert not Path(lock.lock_file).parent.exists()
        held = acquire(lock)
        if not before:
            shutil.rmtree(Path(lock.lock_file).parent)
        return held

    monkeypatch.setattr(FileLock, "acquire", taken)
    save(tmp_path / "out", **NEW)
    assert contents(tmp_path / "out") == NEW_FILES and [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_living_process_is_left_alone_and_so_is_what_only_looks_like_one(tmp_path: Path) -> None:
    living, theirs = tmp_path / ".out.living", tmp_path / ".out.backup"
    (living / "new").mkdir(parents=True)
    (theirs / "new").mkdir(parents=True)
    with FileLock(living / "lock"):
        save(tmp_path / "out", **NEW)
        assert living.is_dir()
    assert theirs.is_dir()


@pytest.mark.skipif(sys.platform == "win32" or shutil.which("unshare") is None, reason="mounts a full and a fixed disk")
def test_a_full_and_a_read_only_disk_are_one_line(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import os, sys
        from pathlib import Path
        sys.path.insert(0, sys.argv[2])
        os.chdir(sys.argv[1])
        os.mkdir("full"), os.mkdir("fixed")
        assert os.system("mount -t tmpfs -o size=64k none full && mount -t tmpfs none fixed && "
                         "mount -o remount,ro fixed") == 0
        from zoo.base.errors import UnwritableError
        from test_folders import save
        for place, reason in (("full", "No space left"), ("fixed/inner", "Read-only file system")):
            try:
                save(Path(place) / "out", model_safetensors="x" * 200_000)
            except UnwritableError as error:
                assert reason in str(error) and "\\n" not in str(error), error
            else:
                raise AssertionError(place)
        assert os.listdir("full") == []
        """
    )
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", script, str(tmp_path)]
    if subprocess.run([*command[:4], "true"], check=False, capture_output=True).returncode:
        pytest.skip("no user namespaces here")
    done = subprocess.run([*command, str(Path(__file__).parent)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_scratch_folders_of_killed_processes_go_and_those_in_use_stay(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / ".zoo.theirs").mkdir()
    (tmp_path / ".zoo.theirs" / "file").write_text("no lock, so no scratch folder")

    def write_and_die() -> None:
        with scratch_folder() as scratch:
            (scratch / "model.safetensors").write_text("weights")
            os.kill(os.getpid(), signal.SIGKILL)

    assert call_in_fork(write_and_die) == -signal.SIGKILL
    assert len(list(tmp_path.glob(".zoo.*/new/model.safetensors"))) == 1
    with scratch_folder() as outer, scratch_folder() as inner:
        assert not list(tmp_path.glob(".zoo.*/new/*"))
        assert outer != inner and outer.is_dir() and inner.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == [".zoo.theirs"]


def test_scratch_folders_of_another_user_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / ".zoo.theirs").mkdir()
    (tmp_path / ".zoo.theirs" / "lock").symlink_to(tmp_path / "precious")
    (tmp_path / "precious").write_text("text")
    finish_earlier(tmp_path / "zoo", owner=os.getuid() + 1)
    assert (tmp_path / "precious").read_text() == "text" and (tmp_path / ".zoo.theirs").is_dir()


@pytest.mark.parametrize("error", [None, FileNotFoundError, FileExistsError])
def test_a_folder_that_its_process_removes_meanwhile_is_passed_over(tmp_path: Path, monkeypatch, error) -> None:
    """Before the lock is taken, or between two steps of that."""
    (tmp_path / ".out.theirs").mkdir()
    (tmp_path / ".out.theirs" / "lock").touch()

    class Late(FileLock):
        def acquire(self, *args: Any, **kwargs: Any) -> Any:
            shutil.rmtree(tmp_path / ".out.theirs", ignore_errors=True)
            if error is not None:
                raise error(self.lock_file)
            return super().acquire(*args, **kwargs)

    monkeypatch.setattr("zoo.base.folders.FileLock", Late)
    finish_earlier(tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_names_of_data_lose_local_folders_alone(tmp_path: Path) -> None:
    file = tmp_path / "a b=1" / "x.txt"
    assert without_folders(str(file)) == "x.txt" and without_folders("org/name") == "org/name"
    assert without_folders(f"hf:{file}") == "hf:x.txt" and without_folders("hf:org/name:en") == "hf:org/name:en"
    assert without_folders(f"{file}=0.25+books=0.5+hf:{file}=0.25") == "x.txt=0.25+books=0.5+hf:x.txt=0.25"
