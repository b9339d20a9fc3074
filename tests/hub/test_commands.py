"""Verbs of the Hub, and repositories as the source of others, through a real HTTP Hub, as a user types it."""

import json
import subprocess
from functools import partial
from pathlib import Path

import pytest
import torch
from native_models import GPT2, native_model
from preloaded import run_python
from safetensors.torch import load_file

from zoo import convert, load
from zoo.base.errors import OutputExistsError
from zoo.cli.reporting import report
from zoo.hub import errors

from .conftest import READ, WRITE, Start, checkpoint, environment, write
from .loopback import LoopbackHub

pytestmark = pytest.mark.thorough

NO_SOCKETS = """
import socket
def refuse(*arguments, **options):
    raise AssertionError("a connection was attempted")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
"""


def zoo(
    hub: LoopbackHub, home: Path, *arguments: object, sockets: bool = True, **variables: str
) -> subprocess.CompletedProcess[str]:
    start = f"{'' if sockets else NO_SOCKETS}\nimport sys\nfrom zoo.cli.main import main\nsys.argv[0] = 'zoo'\nmain()"
    surroundings = environment(hub, home, **{"HF_TOKEN": WRITE, **variables})
    return run_python(["-c", start, *map(str, arguments)], env=surroundings)


def test_push_list_and_pull(hub: LoopbackHub, tmp_path: Path) -> None:
    folder, home = write(tmp_path / "model", checkpoint()), tmp_path / "home"
    pushed = zoo(hub, home, "push", folder, "org/model", "-m", "Mine", "--json")
    assert pushed.returncode == 0, pushed.stderr
    report = json.loads(pushed.stdout)
    assert report["commit"] == hub.storage.repo("org/model")["refs"]["main"]
    listed = zoo(hub, home, "list", "--hub", "org", "--json")
    assert [model["repo_id"] for model in json.loads(listed.stdout)] == ["org/model"]
    pulled = zoo(hub, home, "pull", "org/model", tmp_path / "out")
    assert pulled.stdout.strip() == str(tmp_path / "out"), pulled.stderr
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == checkpoint()["model.safetensors"]


def test_a_card_that_stays_is_named_where_a_new_one_would_differ(worker: Start, tmp_path: Path) -> None:
    folder, command = write(tmp_path / "model", checkpoint()), partial(worker().ok, "command")
    own = command("push", folder, "org/model", "--tags", "mine", "--dry_run")
    assert f"zoo: warning: {folder / 'README.md'} is kept" in " ".join(own["stderr"].split()), own
    (folder / "README.md").unlink()
    for options, named in (((), False), ((), False), (("--license", "mit"), True), (("--overwrite-card",), False)):
        done = command("push", folder, "org/model", *options)
        assert done["code"] == 0 and ("README.md of org/model is kept" in done["stderr"]) == named, done


def test_files_of_main_that_a_new_branch_keeps_are_named(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    hub.storage.put("org/model", {"notes.txt": b"main", "config.json": b"{}"})
    done = worker().ok("command", "push", write(tmp_path / "model", checkpoint()), "org/model@v2")
    assert done["code"] == 0 and "Kept, as they were there: notes.txt\n" in done["stderr"], done


def test_a_dry_run_opens_no_socket(hub: LoopbackHub, tmp_path: Path) -> None:
    folder = write(tmp_path / "model", checkpoint())
    done = zoo(hub, tmp_path / "home", "push", folder, "org/model", "--dry-run", sockets=False)
    assert done.returncode == 0, done.stderr
    for path, content in checkpoint().items():
        assert path in done.stdout and f"{len(content):,}" in done.stdout
    assert hub.log == []


def test_offline_opens_no_socket(hub: LoopbackHub, tmp_path: Path) -> None:
    hub.storage.put("org/model", checkpoint())
    home = tmp_path / "home"
    assert zoo(hub, home, "pull", "org/model").returncode == 0
    hub.log.clear()
    by_option = zoo(hub, home, "pull", "org/model", "--offline", sockets=False)
    by_variable = zoo(hub, home, "pull", "org/model", sockets=False, HF_HUB_OFFLINE="1")
    assert by_option.returncode == by_variable.returncode == 0, by_option.stderr + by_variable.stderr
    assert Path(by_option.stdout.strip()).is_dir()
    assert hub.log == []


def test_errors_are_one_line_without_the_token(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    hub.storage.put("org/model", checkpoint())
    folder, command = write(tmp_path / "model", checkpoint(b"new")), partial(worker().ok, "command")
    done = command("push", folder, "org/model", "--token", READ, "--traceback")
    assert done["code"] == 1
    assert done["stderr"].strip().splitlines()[-1].startswith("zoo: error: ")
    assert READ not in done["stderr"] + done["stdout"] and WRITE not in done["stderr"]
    for other in ("*-norm", "--wide"):
        refused = command("list", "--hub", "org", other)
        assert refused["code"] == 2 and "--hub lists all of the owner's models" in refused["stderr"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.HubUnreachableError("no answer"), 1),
        (errors.HubAccessError("gated"), 1),
        (errors.HubConflictError("changed meanwhile"), 1),
        (errors.IntegrityError("damaged"), 1),
        (OSError(28, "No space left on device"), 1),
        (errors.RepoIdError("not a name"), 2),
        (errors.RemoteCodeError("needs code"), 2),
        (errors.UnsafeWeightsError("pickles only"), 2),
        (OutputExistsError("not empty"), 2),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_what_may_work_another_time_exits_with_1_and_what_cannot_with_2(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(error) == code
    assert capsys.readouterr().err.count("\n") == 1


COMMANDS = """
import sys
from zoo.cli.main import cli
for command in sys.argv[1:]:
    cli.main(command.split(), standalone_mode=False)
"""


def folder(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_repositories_are_converted_exported_and_built(hub: LoopbackHub, tmp_path: Path) -> None:
    native = native_model("GPT2", "LMHeadModel", GPT2, dtype=torch.float32).eval()
    native.save_pretrained(tmp_path / "native")
    files = folder(tmp_path / "native")
    hub.storage.put("org/safe", {**files, "pytorch_model.bin": b"never pulled", "flax_model.msgpack": b"nor this"})
    torch.save(load_file(tmp_path / "native" / "model.safetensors"), tmp_path / "pytorch_model.bin")
    files.pop("model.safetensors")
    hub.storage.put("org/old", {**files, "pytorch_model.bin": (tmp_path / "pytorch_model.bin").read_bytes()})
    convert(native).save_pretrained(tmp_path / "ours")
    hub.storage.put("org/ours", folder(tmp_path / "ours"))

    done = run_python(
        [
            "-c",
            COMMANDS,
            f"convert org/safe@main -o {tmp_path}/a",
            f"convert org/old -o {tmp_path}/b",
            f"export org/ours -o {tmp_path}/c --as gpt2",
            "export org/ours --plan",
            f"build hf-hub:org/ours@main -o {tmp_path}/d",
        ],
        env=environment(hub, tmp_path / "home", HF_TOKEN=READ),
    )
    assert done.returncode == 0, done.stderr
    asked = " ".join(str(entry) for entry in hub.log)
    assert "org/old/resolve" in asked and "flax_model" not in asked
    assert "/safe/resolve" in asked and not any("safe/" in str(e) and "pytorch_model" in str(e) for e in hub.log)
    ids = torch.tensor([[3, 4, 5, 6]])
    for name in "abcd":
        loaded = load(tmp_path / name) if name != "c" else type(native).from_pretrained(tmp_path / name).eval()
        assert torch.allclose(loaded(input_ids=ids).logits, native(input_ids=ids).logits, atol=1e-5)
