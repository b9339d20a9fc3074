"""`transformers serve` with a folder of the zoo, over loopback, asked by OpenAI's client."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import zoo

openai = pytest.importorskip("openai", reason='needs pip install "transformer-zoo[serving]"')
pytest.importorskip("uvicorn", reason='needs pip install "transformer-zoo[serving]"')

pytestmark = [pytest.mark.slow, pytest.mark.nightly]
PROMPT = "The house"
PATIENCE = 120


@pytest.fixture(scope="module")
def weights() -> Path:
    return Path(zoo.__file__).parent / "weights" / "shipped" / "llama-style.char-en"


@pytest.fixture(scope="module")
def client(weights, tmp_path_factory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("served") / "log"
    command = [sys.executable, "-m", "zoo.serving", str(weights), "--host", "127.0.0.1", "--port", str(port)]
    with (
        log.open("w") as output,
        subprocess.Popen([*command, "--device", "cpu"], stdout=output, stderr=output) as server,
    ):
        asked = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
        try:
            wait_for(port, server, log)
            yield asked
        finally:
            server.terminate()


def wait_for(port: int, server: subprocess.Popen, log: Path) -> None:
    for _ in range(PATIENCE):
        assert server.poll() is None, log.read_text()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(1)
    raise AssertionError(log.read_text())


@pytest.fixture(scope="module")
def expected(weights) -> str:
    return zoo.generate(weights, [PROMPT], max_new_tokens=24, do_sample=False)[0].candidates[0].text


def test_a_completion_is_what_the_zoo_generates(client, weights, expected):
    answer = client.completions.create(model=str(weights), prompt=PROMPT, max_tokens=24, temperature=0)
    assert answer.choices[0].text.strip() == expected.strip()
    assert answer.usage.completion_tokens == 24


def test_a_stream_comes_in_pieces_that_make_up_the_completion(client, weights, expected):
    stream = client.completions.create(model=str(weights), prompt=PROMPT, max_tokens=24, temperature=0, stream=True)
    pieces = [chunk.choices[0].text for chunk in stream if chunk.choices]
    assert len([piece for piece in pieces if piece]) > 3
    assert "".join(pieces).strip() == expected.strip()
