"""Windows and macOS, simulated: names of files, encodings, cases, processes without fork."""

from __future__ import annotations

import ast
import errno
import os
import subprocess
import sys
from pathlib import Path, PureWindowsPath
from unittest.mock import Mock

import pytest
from snippets import PACKAGES, ROOT

import zoo.hub.delivery
from zoo.base.errors import CheckpointError, OutputExistsError, UnwritableError
from zoo.base.files import check_writable, leaves_its_folder
from zoo.base.manifest import MANIFEST_FILE, read_manifest
from zoo.comparison.run.launchers import ForkServer
from zoo.comparison.setup.jobs import folder_name
from zoo.hub.errors import HubError
from zoo.hub.pulling import files_to_pull

SOURCES = sorted(file for folder in PACKAGES for file in (ROOT / folder).rglob("*.py"))
POSIX_ONLY = {"fcntl", "grp", "posix", "pwd", "pty", "resource", "syslog", "termios", "tty"}


def tracked() -> list[str]:
    """The files of the repository, or of the source distribution."""
    if (ROOT / ".git").exists():
        return subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
            "\n"
        )
    return [file.relative_to(ROOT).as_posix() for folder in (*PACKAGES, "tests") for file in (ROOT / folder).rglob("*")]


def test_every_file_can_be_checked_out_on_windows_and_macos() -> None:
    names = [name for name in tracked() if name]
    folded: dict[str, set[str]] = {}
    for name in names:
        for part in (name, *map(str, Path(name).parents)):
            folded.setdefault(part.casefold(), set()).add(part)
    assert [same for same in folded.values() if len(same) > 1] == []
    devices = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10))}
    for name in names:
        for part in name.split("/"):
            assert not set(part) & set('<>:"|?*\\') and not part.endswith((" ", ".")), name
            assert part.partition(".")[0].casefold() not in devices, name
        assert len(name) < 180, name


def test_texts_have_an_encoding_and_modules_import_everywhere() -> None:
    """Without `encoding`, Windows reads and writes code pages."""
    for source in SOURCES:
        tree = ast.parse(source.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                check_call(node, f"{source}, line {node.lineno}")
        for one in tree.body:
            if isinstance(one, ast.Import | ast.ImportFrom):
                names = [one.module or ""] if isinstance(one, ast.ImportFrom) else [a.name for a in one.names]
                assert not POSIX_ONLY & {name.partition(".")[0] for name in names}, f"{source}, line {one.lineno}"


def check_call(node: ast.Call, place: str) -> None:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
    shown = {keyword.arg for keyword in node.keywords}
    if name in ("read_text", "write_text") and isinstance(node.func, ast.Attribute):
        assert "encoding" in shown, place
    elif name == "open" and isinstance(node.func, ast.Name):
        modes = [one.value for one in node.args[1:2] if isinstance(one, ast.Constant)]
        assert "encoding" in shown or any("b" in str(mode) for mode in modes), place
    elif ast.unparse(node.func) in ("subprocess.run", "subprocess.Popen"):
        assert "text" not in shown, f"{place}: name the encoding of what is read"
    elif name == "str" and node.args and isinstance(node.args[0], ast.Call):
        made = getattr(node.args[0].func, "attr", None)
        assert made != "relative_to", f"{place}: as_posix() names the same file on Windows"


LEAVING = ["../x", "a/../../x", "/x", "C:x", "C:/x", "C:\\x", "\\x", "..\\x", "a\\..\\..\\x", "\\\\server\\share\\x"]


@pytest.mark.parametrize("name", LEAVING)
def test_a_name_that_leads_out_of_its_folder_anywhere_is_refused_everywhere(name: str, tmp_path: Path) -> None:
    assert leaves_its_folder(name)
    with pytest.raises(HubError, match="would leave its folder"):
        files_to_pull({"config.json": None, name: None}, with_code=False)
    entry = '{"size": 1, "sha256": "0"}'
    (tmp_path / MANIFEST_FILE).write_text(f'{{"files": {{"{name.replace(chr(92), chr(92) * 2)}": {entry}}}}}')
    with pytest.raises(CheckpointError, match="not a file of its own folder"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("name", ["x", "a/x", "a.b/x-00001-of-00002.safetensors", "..x", "a/..x"])
def test_other_names_are_not(name: str) -> None:
    assert not leaves_its_folder(name)


def test_two_files_that_one_folder_cannot_hold_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system without upper and lower case, the second would replace the first."""
    names = ["README.md", "config.json", "readme.md"]
    for name in names:
        (tmp_path / "snapshot").mkdir(exist_ok=True)
        (tmp_path / "snapshot" / name).write_text(name)

    def lexists(path: Path) -> bool:
        folder = Path(path).parent
        return folder.is_dir() and Path(path).name.casefold() in {one.name.casefold() for one in folder.iterdir()}

    monkeypatch.setattr(zoo.hub.delivery.os.path, "lexists", lexists)
    with pytest.raises(OutputExistsError, match=r"two files 'readme\.md' but for upper and lower case"):
        zoo.hub.delivery.deliver(tmp_path / "snapshot", names, tmp_path / "out", "o/n")
    assert not (tmp_path / "out" / "config.json").exists()


def test_a_drive_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda self: False)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UnwritableError, match="cannot be written"):
        check_writable(Path("/no/such/drive"))


@pytest.mark.parametrize("name", ["pre-norm:position=rotary,hidden_size=64", "vanilla+faithful", "o/n", "a\\b", "C:x"])
def test_folders_that_are_named_after_models_have_names_for_windows(name: str) -> None:
    folder = folder_name(name)
    assert PureWindowsPath(folder).name == folder and not set(folder) & set('<>:"|?*')


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "encoding"), [("list", "ascii"), ("list", "cp1252"), ("weights", "ascii"), ("show vanilla", "ascii")]
)
def test_consoles_with_few_letters_show_everything(command: str, encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "LC_ALL": "C"}
    command = [sys.executable, "-m", "zoo", *command.split()]
    run = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode(encoding)
    assert run.stdout.decode(encoding)


@pytest.mark.slow
def test_runs_are_started_where_there_is_no_fork(tmp_path: Path) -> None:
    """As on Windows and macOS, or next to a GPU: the server of processes spawns them, with any letters in paths."""
    code = "from pathlib import Path\ndef main(words):\n    Path(words[0]).touch()\n    return 3\n"
    (tmp_path / "task_of_a_test.py").write_text(code)
    server = "import zoo.comparison.run.fork_server as server; server.can_fork = lambda: False; server.main(['json'])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    environment["PYTHONIOENCODING"] = "cp1252"
    done = tmp_path / "cópia"
    command = [sys.executable, "-c", server]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8", env=environment) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"1\ttask_of_a_test\t{done}\n")
        process.stdin.flush()
        assert (process.stdout.readline(), done.exists()) == ("1 3\n", True)
        process.stdin.close()


def test_a_server_that_is_gone_can_be_stopped() -> None:
    """Windows raises a plain OSError for a pipe that nothing reads."""
    server = ForkServer("json")
    server.process = Mock()
    server.process.stdin.close.side_effect = OSError(errno.EINVAL, "Invalid argument")
    server.stop()
    server.process.wait.assert_called_once()
