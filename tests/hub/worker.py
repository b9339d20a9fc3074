"""A process that pushes and pulls through the real client. Commands are lines of JSON on its standard input.

Its clock runs fast, so that the client's own waits between attempts do not make the tests slow.
"""

import json
import os
import resource
import sys
import time
import traceback
from functools import partial
from pathlib import Path
from typing import Any

SPEED = 100
LONGEST_WAIT = 61  # Seconds on the fast clock that nothing may wait for
_sleep = time.sleep
_waits: list[float] = []


def sleep(seconds: float) -> None:
    _waits.append(seconds)
    _sleep(min(seconds, LONGEST_WAIT) / SPEED)


time.sleep = sleep


def limit_files() -> None:
    """Let writing fail as it does on a full disk."""
    if largest := os.environ.get("TEST_LARGEST_FILE"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(largest), int(largest)))


def main() -> None:
    limit_files()
    import huggingface_hub.file_download as file_download
    from huggingface_hub import constants

    os.environ["HF_XET_CLIENT_RETRY_BASE_DELAY"] = "10ms"
    timeout = float(os.environ.get("TEST_TIMEOUT", "0.5"))
    constants.HF_HUB_DOWNLOAD_TIMEOUT = constants.HF_HUB_ETAG_TIMEOUT = timeout
    file_download._ETAG_RETRY_TIMEOUT = timeout

    from zoo import hub
    from zoo.base.errors import ZooError

    def push(folder: str, repo_id: str, first_wait: float = 1.0, **options: Any) -> dict[str, Any]:
        if options.get("native") or options.get(
            "with_code"
        ):  # verified here: in test_models.py, a fresh process does it
            from zoo import converters
            from zoo.converters.exporting import export

            converters.export = partial(export, fresh_process=False)
        report = hub.push(folder, repo_id, retry_policy=hub.RetryPolicy(timeout, first_wait=first_wait), **options)
        return {key: dict(value) if key == "files" else value for key, value in vars(report).items()}

    def pull(repo_id: str, **options: Any) -> dict[str, Any]:
        folder = hub.pull(repo_id, retry_policy=hub.RetryPolicy(timeout=timeout), **options)
        return {"folder": str(folder), "files": read(folder)}

    def listing(owner: str, **options: Any) -> list[dict[str, Any]]:
        return [vars(model) for model in hub.list_hub(owner, retry_policy=hub.RetryPolicy(timeout=timeout), **options)]

    def upload(folder: str, repo_id: str) -> str:
        """Upload a folder without the zoo, as transformers' trainer does."""
        import huggingface_hub

        return huggingface_hub.upload_folder(repo_id=repo_id, folder_path=folder).oid

    def command(*words: str) -> dict[str, Any]:
        """Run `zoo` as it is typed."""
        from click.testing import CliRunner

        from zoo.cli.main import cli

        done = CliRunner().invoke(cli, words)
        return {"code": done.exit_code, "stdout": done.stdout, "stderr": done.stderr}

    verbs = {"push": push, "pull": pull, "list": listing, "upload": upload, "command": command}
    print("ready", flush=True)
    for line in sys.stdin:
        verb, arguments, options, token = json.loads(line)
        os.environ["HF_TOKEN"] = token or ""
        answer: dict[str, Any] = {"ok": None, "error": None}
        _waits.clear()
        try:
            answer["ok"] = verbs[verb](*arguments, **options)
        except ZooError as error:
            answer.update(error=type(error).__name__, message=str(error), traceback=traceback.format_exc())
        except BaseException as error:
            answer.update(
                error=f"UNTRANSLATED {type(error).__name__}", message=str(error), traceback=traceback.format_exc()
            )
        answer["waited_too_long"] = [seconds for seconds in _waits if seconds > LONGEST_WAIT]
        print(json.dumps(answer), flush=True)


def read(folder: Path) -> dict[str, str]:
    import hashlib

    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


if __name__ == "__main__":
    main()
