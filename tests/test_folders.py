from __future__ import annotations

import pytest

from zoo.errors import OutputExistsError
from zoo.folders import written_whole


def names(folder):
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*"))


def test_a_failure_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), written_whole(tmp_path / "out") as folder:
        (folder / "half").write_text("")
        raise RuntimeError
    assert names(tmp_path) == []


def test_a_failure_leaves_what_was_there(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "config.json").write_text("old")
    with pytest.raises(RuntimeError), written_whole(out, force=True) as folder:
        (folder / "config.json").write_text("new")
        raise RuntimeError
    assert (out / "config.json").read_text() == "old"
    assert names(tmp_path) == ["out", "out/config.json"]


def test_force_replaces_the_whole_folder(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "config.json").write_text("old")
    (out / "stale").write_text("old")
    with written_whole(out, force=True) as folder:
        (folder / "config.json").write_text("new")
    assert names(tmp_path) == ["out", "out/config.json"]
    assert (out / "config.json").read_text() == "new"


def test_an_empty_folder_may_be_filled(tmp_path):
    (tmp_path / "out").mkdir()
    with written_whole(tmp_path / "out") as folder:
        (folder / "file").write_text("")
    assert names(tmp_path) == ["out", "out/file"]


def test_what_was_put_there_meanwhile_is_kept(tmp_path):
    with pytest.raises(OutputExistsError), written_whole(tmp_path / "out"):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "theirs").write_text("")
    assert names(tmp_path) == ["out", "out/theirs"]


def test_a_file_is_not_replaced(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(OutputExistsError, match="is not a folder"), written_whole(tmp_path / "out", force=True):
        pass


def test_the_current_folder_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputExistsError, match="current folder"), written_whole(tmp_path):
        pass
