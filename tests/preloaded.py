"""Runs Python's command line in forks of a process that has imported PyTorch already, or of this one.

Of the four seconds for which a fresh process imports, two and a half go to PyTorch and what transformers imports of it.
A fork begins with that. Transformers, huggingface_hub and the zoo, which read environment variables when they are
imported, it imports itself. A fork of this process has these imported, too, as this process was told to.

Tests that use `run_python` are of the xdist group "preloaded", so that one such process serves them all. As a script,
this file is that process: it reads requests, a line of JSON each, and writes an exit code for each.
"""

import atexit
import gc
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

PRELOADED = (
    *("pandas", "safetensors.torch", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor"),
    "torch.nn.attention.flex_attention",
)


@cache
def server() -> subprocess.Popen[str]:
    """The process, started when it is first needed."""
    command = [sys.executable, "-u", __file__]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(process.communicate)  # until it ends, as it does with its input
    return process


def run_python(
    arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS` as `subprocess.run(..., capture_output=True, text=True)` does, two seconds sooner.

    Args:
        arguments: `-c CODE`, `-m MODULE` or a script, and its arguments.
        env: All environment variables.
        cwd: Where it runs.
    """
    process = server()
    assert process.stdin is not None and process.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, name) for name in ("stdout", "stderr")]
        request = {"arguments": [*arguments], "env": {**env}, "cwd": str(cwd or Path.cwd())}
        print(json.dumps({**request, "outputs": [*map(str, outputs)]}), file=process.stdin, flush=True)
        code = int(process.stdout.readline())
        return subprocess.CompletedProcess([*arguments], code, *(output.read_text() for output in outputs))


def run_isolated(command: Sequence[str], *, env: Mapping[str, str] = os.environ, **_: object) -> Any:
    """Run `PYTHON -I SCRIPT ...`, in place of `subprocess.run` in proofs and verifications of the zoo."""
    alone = "import runpy, sys; del sys.argv[0], sys.path[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
    return run_python(["-c", alone, *command[2:]], env=env)


def run_fork(
    arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS` as `run_python` does, in a fork of this process, which has imported the zoo."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, name) for name in ("stdout", "stderr")]
        if (child := os.fork()) == 0:
            atexit._clear()  # what ends with this process does not end with its fork
            os._exit(become([*arguments], {**env}, str(cwd or Path.cwd()), [*map(str, outputs)]))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return subprocess.CompletedProcess([*arguments], code, *(output.read_text() for output in outputs))


def serve() -> None:
    """Fork for every request."""
    gc.disable()
    for name in PRELOADED:
        import_module(name)
    gc.freeze()  # no fork looks for garbage among what they share, which would copy all of it
    gc.enable()
    assert not {"transformers", "huggingface_hub", "zoo"} & sys.modules.keys()
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            os._exit(become(**json.loads(line)))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def become(arguments: list[str], env: dict[str, str], cwd: str, outputs: list[str]) -> int:
    """Do what `python ARGUMENTS` does, and return its exit code."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, output in enumerate(outputs, start=1):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), descriptor)
    streams = [open(number, mode, encoding="utf-8") for number, mode in enumerate("rww")]  # noqa: SIM115
    sys.stdin, sys.stdout, sys.stderr = streams
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


if __name__ == "__main__":
    serve()
