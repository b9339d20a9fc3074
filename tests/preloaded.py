"""Runs Python's command line in forks of a process that has imported PyTorch already, or of this one.

Of the four seconds for which a fresh process imports, three go to PyTorch and what transformers imports of it and of
others. A fork begins with that. Transformers, huggingface_hub and the zoo, which read environment variables when they
are imported, it imports itself. A fork of this process has these imported, too, with the environment of this process.

One such process serves all processes of a test run, and ends with the last of them. As a script, this file is that
process: it reads requests, a line of JSON each with the streams of the fork, and answers with the fork's process and
exit code. Verifications that a fork runs in an isolated Python, `python -I SCRIPT`, are forks, too.
"""

import atexit
import gc
import json
import os
import runpy
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PRELOADED = (
    *("pandas", "safetensors.torch", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor"),
    *("torch.nn.attention.flex_attention", "torch.distributed.checkpoint", "PIL.Image", "click", "filelock"),
    "httpx2" if find_spec("httpx2") else "httpx",  # as the Hub's library of that version
    *("jinja2", "psutil", "regex", "rich.console", "rich.progress", "rich.table", "tokenizers", "xxhash", "yaml"),
)

Done = subprocess.CompletedProcess[str]


@cache
def server() -> socket.socket:
    """A connection to the process, which is started when it is first needed and ends when all of these are closed."""
    from fcntl import LOCK_EX, flock

    folder = Path(tempfile.gettempdir(), f"zoo-{os.environ.get('PYTEST_XDIST_TESTRUNUID', str(os.getpid()))[:12]}")
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            flock(lock, LOCK_EX)
            if not (folder / "lock").exists():
                continue  # of a process that has just ended
            if not (folder / "socket").exists():
                command = [sys.executable, "-u", __file__, str(folder / "socket")]
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
                assert process.stdout is not None and process.stdout.readline() == b"ready\n"
                process.returncode = 0  # not waited for; with None Python would warn of it
            return connect(str(folder / "socket"))


def connect(address: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    return connection


class Fork:
    """A running `python ARGUMENTS` (`-c`, `-m` or a script, after `-I` too), with what `subprocess.Popen` has.

    `streams` are file descriptors, `env` all variables of the environment, and `address` is of the process that forks.
    """

    returncode: int | None = None

    def __init__(
        self,
        arguments: Sequence[str],
        streams: Sequence[int],
        *,
        env: Mapping[str, str],
        cwd: Path | None = None,
        address: str | None = None,
    ) -> None:
        self._connection = connect(address or server().getpeername())
        request = {"arguments": [*arguments], "env": {**env}, "cwd": str(cwd or Path.cwd())}
        socket.send_fds(self._connection, [json.dumps(request).encode() + b"\n"], streams)
        self.pid = self._answer()

    def _answer(self) -> int:
        (number,) = struct.unpack("q", self._connection.recv(8, socket.MSG_WAITALL))
        return number

    def poll(self, timeout: float | None = 0) -> int | None:
        """The exit code, None if it runs on."""
        if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            self.returncode = self._answer()
            self._connection.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        code = self.poll(timeout)
        assert code is not None, f"process {self.pid} has run for {timeout} s"
        return code

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, how: int) -> None:
        """Send it a signal."""
        if self.poll() is None:
            os.kill(self.pid, how)


def start_python(
    arguments: Sequence[str],
    streams: Sequence[int],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    address: str | None = None,
) -> Fork | subprocess.Popen[bytes]:
    """Start a `Fork`, or a new process where there are none. Arguments are those of `Fork`."""
    if sys.platform == "win32":
        return subprocess.Popen([sys.executable, *arguments], -1, None, *streams, env={**env}, cwd=cwd)
    return Fork(arguments, streams, env=env, cwd=cwd, address=address)


def run_python(
    arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None, address: str | None = None
) -> Done:
    """Run `python ARGUMENTS` as `subprocess.run(..., capture_output=True, text=True)` does, three seconds sooner.

    Arguments are those of `Fork`.
    """
    with open(os.devnull) as nothing, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        streams = [stream.fileno() for stream in (nothing, stdout, stderr)]
        code = start_python(arguments, streams, env=env, cwd=cwd, address=address).wait()
        return completed(arguments, code, stdout, stderr)


def completed(arguments: Sequence[str], code: int, *outputs: Any) -> Done:
    """The end of a fork that wrote to these files."""
    for output in outputs:
        output.seek(0)
    return subprocess.CompletedProcess([*arguments], code, *(output.read().decode() for output in outputs))


def run_ranks(processes: int, arguments: Sequence[str]) -> None:
    """Run `python ARGUMENTS` in several processes, as `torchrun --nproc_per_node PROCESSES` does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(processes)}
    env |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ranks = [{**env, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)]
    with ThreadPoolExecutor(processes) as together:
        for done in together.map(lambda env: run_python(arguments, env=env), ranks):
            assert done.returncode == 0, done.stdout + done.stderr


def run_isolated(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, address: str | None = None, **_: object
) -> Done:
    """Run `PYTHON -I SCRIPT ...`, in place of `subprocess.run` in proofs and verifications of the zoo."""
    return run_python(command[1:], env=os.environ if env is None else env, address=address)


def run_fork(arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None) -> Done:
    """Run `python ARGUMENTS` as `run_python` does, in a fork of this process, which has imported the zoo."""
    with open(os.devnull) as nothing, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        if (child := os.fork()) == 0:
            atexit._clear()  # what ends with this process does not end with its fork
            streams = [stream.fileno() for stream in (nothing, stdout, stderr)]
            os._exit(become([*arguments], {**env}, str(cwd or Path.cwd()), streams))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return completed(arguments, code, stdout, stderr)


def call_in_fork(work: Callable[[], object]) -> int:
    """Call a function in a fork of this process, and return the exit code, 1 after an error."""
    if (child := os.fork()) == 0:
        try:
            work()
            os._exit(0)
        finally:  # pytest would go on in both processes
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def serve(address: str) -> None:
    """Fork for every request, until the last connection is closed."""
    from fcntl import LOCK_EX, flock

    gc.disable()
    for name in PRELOADED:
        import_module(name)
    gc.freeze()  # no fork looks for garbage among what they share, which would copy all of it
    gc.enable()
    assert not {"transformers", "huggingface_hub", "zoo"} & sys.modules.keys()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with those that it serves
    print("ready", flush=True)
    connected: set[socket.socket] = set()
    while True:
        for one in select.select([listener, *connected], [], [])[0]:
            if one is listener:
                connected.add(listener.accept()[0])
                continue
            connected.remove(one)
            request, streams, *_ = socket.recv_fds(one, 1 << 20, 3)
            if request and os.fork() == 0:
                for other in (listener, *connected):
                    other.close()
                attend(one, request, streams, address)
            for descriptor in streams:
                os.close(descriptor)
            one.close()
        while reaped():
            pass
        if not connected:
            with Path(address).with_name("lock").open("w") as lock:
                flock(lock, LOCK_EX)
                if not select.select([listener], [], [], 0)[0]:
                    shutil.rmtree(Path(address).parent)
                    os._exit(0)


def reaped() -> bool:
    """Whether a process that attended to a request had ended."""
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def attend(connection: socket.socket, request: bytes, streams: list[int], address: str) -> None:
    """Fork for a request, and answer with the process and its exit code."""
    while not request.endswith(b"\n"):
        request += connection.recv(1 << 20)
    if (child := os.fork()) == 0:
        connection.close()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os._exit(become(**json.loads(request), descriptors=streams, address=address))
    for descriptor in streams:
        os.close(descriptor)
    connection.sendall(struct.pack("q", child))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with suppress(BrokenPipeError):  # if the caller has gone
        connection.sendall(struct.pack("q", code))
    os._exit(0)


def become(arguments: list[str], env: Any, cwd: str, descriptors: list[int], address: str | None = None) -> int:
    """Do what `python ARGUMENTS` does, and return its exit code."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout = (open(number, mode, encoding="utf-8") for number, mode in enumerate("rw"))  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
    if address is not None:
        subprocess.run = partial(run_command, subprocess.run, address)
    added = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    code = 0
    try:
        match arguments:
            case ["-c", program, *rest]:
                sys.argv, sys.path[:] = ["-c", *rest], ["", *added, *sys.path[1:]]
                exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
            case ["-m", module, *rest]:
                sys.argv, sys.path[:] = [module, *rest], [cwd, *added, *sys.path[1:]]
                runpy.run_module(module, run_name="__main__", alter_sys=True)
            case ["-I", script, *_]:
                sys.argv, sys.path[:] = arguments[1:], sys.path[1:]
                runpy.run_path(script, run_name="__main__")
            case [script, *_]:
                sys.argv, sys.path[:] = arguments, [str(Path(script).parent), *added, *sys.path[1:]]
                runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def run_command(run: Any, address: str, command: Any, *args: Any, **given: Any) -> Any:
    """`subprocess.run` of a fork: what runs in an isolated Python runs in another fork."""
    if [*command[:2]] == [sys.executable, "-I"] and command[2] != "-c":
        return run_isolated(command, address=address, **given)
    return run(command, *args, **given)


if __name__ == "__main__":
    serve(sys.argv[1])
