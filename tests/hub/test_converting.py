"""Repositories as the source of a conversion and of an export: through a real HTTP Hub, as a user types it."""

from pathlib import Path

import pytest
import torch
from native_models import GPT2, native_model
from preloaded import run_python
from safetensors.torch import load_file

import zoo

from .conftest import READ, environment
from .loopback import LoopbackHub

pytestmark = pytest.mark.thorough

COMMANDS = """
import sys
from zoo.cli.main import cli
for command in sys.argv[1:]:
    cli.main(command.split(), standalone_mode=False)
"""


def folder(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_repositories_are_converted_and_exported(hub: LoopbackHub, tmp_path: Path) -> None:
    native = native_model("GPT2", "LMHeadModel", GPT2, dtype=torch.float32).eval()
    native.save_pretrained(tmp_path / "native")
    files = folder(tmp_path / "native")
    hub.storage.put("org/safe", {**files, "pytorch_model.bin": b"never pulled", "flax_model.msgpack": b"nor this"})
    torch.save(load_file(tmp_path / "native" / "model.safetensors"), tmp_path / "pytorch_model.bin")
    files.pop("model.safetensors")
    hub.storage.put("org/old", {**files, "pytorch_model.bin": (tmp_path / "pytorch_model.bin").read_bytes()})
    zoo.convert(native).save_pretrained(tmp_path / "ours")
    hub.storage.put("org/ours", folder(tmp_path / "ours"))

    done = run_python(
        [
            "-c",
            COMMANDS,
            f"convert org/safe@main -o {tmp_path}/a",
            f"convert org/old -o {tmp_path}/b",
            f"export org/ours -o {tmp_path}/c --as gpt2",
            "export org/ours --plan",
        ],
        env=environment(hub, tmp_path / "home", HF_TOKEN=READ),
    )
    assert done.returncode == 0, done.stderr
    asked = " ".join(str(entry) for entry in hub.log)
    assert "org/old/resolve" in asked and "flax_model" not in asked
    assert "/safe/resolve" in asked and not any("safe/" in str(e) and "pytorch_model" in str(e) for e in hub.log)
    ids = torch.tensor([[3, 4, 5, 6]])
    for name in "abc":
        loaded = zoo.load(tmp_path / name) if name != "c" else type(native).from_pretrained(tmp_path / name).eval()
        assert torch.allclose(loaded(input_ids=ids).logits, native(input_ids=ids).logits, atol=1e-5)
