"""Models that were pushed and are loaded in fresh processes, with a home of their own, are the same bit for bit."""

import hashlib
from pathlib import Path

import pytest
from preloaded import run_python

from zoo.registry import VARIANTS, list_variants

from .conftest import WRITE, environment
from .loopback import LoopbackHub

pytestmark = pytest.mark.thorough

FEW = ["vanilla=seq2seq-lm", "llama-style=causal-lm"]
EVERY = [f"{name}={VARIANTS.get(name).default_task}" for name in list_variants()]


def run(hub: LoopbackHub, home: Path, verb: str, folder: Path, models: list[str], **variables: str) -> str:
    folder.mkdir(exist_ok=True)
    own = {"HF_TOKEN": WRITE, "HF_MODULES_CACHE": str(home / "modules"), **variables}
    worker = str(Path(__file__).with_name("models_worker.py"))
    done = run_python([worker, verb, str(folder), *models], env=environment(hub, home, **own))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_is_pulled_is_what_was_pushed(hub: LoopbackHub, tmp_path: Path) -> None:
    kept_card = FEW[-1].replace("=", "-")
    hub.storage.put(f"org/{kept_card}", {"README.md": b"# Mine"})
    run(hub, tmp_path / "home-a", "push", tmp_path / "kept", FEW)
    assert hub.storage.contents(f"org/{kept_card}")["README.md"] == b"# Mine"
    run(hub, tmp_path / "home-b", "check-zoo", tmp_path / "kept", FEW)
    hub.log.clear()
    run(hub, tmp_path / "home-b", "check-zoo", tmp_path / "kept", FEW, HF_HUB_OFFLINE="1")
    assert hub.log == []
    for model in FEW[:-1]:
        card = hub.storage.contents(f"org/{model.replace('=', '-')}")["README.md"].decode()
        variant = model.split("=")[0]
        assert "library_name: transformer-zoo" in card and f"`{variant}`" in card
        assert "license" not in card.split("---")[1], "a licence was made up"


@pytest.mark.slow
@pytest.mark.nightly
def test_every_variant_comes_back_in_all_three_ways(hub: LoopbackHub, tmp_path: Path) -> None:
    output = run(hub, tmp_path / "home-a", "push-three-ways", tmp_path / "kept", EVERY)
    native = [line.split()[1] for line in output.splitlines() if line.startswith("native ")]
    as_is = {model.removesuffix("=as-is") for model in native if model.endswith("=as-is")}
    assert {"gpt2-style=causal-lm", "llama-style=causal-lm", "bert-style=masked-lm", "vanilla=seq2seq-lm"} <= as_is
    run(hub, tmp_path / "home-b", "check-load", tmp_path / "kept", [m + "=as-is" if m in as_is else m for m in EVERY])
    run(hub, tmp_path / "home-c", "check-code", tmp_path / "kept", EVERY)
    run(hub, tmp_path / "home-d", "check-native", tmp_path / "kept", native)


@pytest.mark.slow
def test_code_and_native_export_are_verified_and_pushed_with_the_model(hub: LoopbackHub, tmp_path: Path) -> None:
    run(hub, tmp_path / "home", "push-with-all", tmp_path / "kept", ["vanilla=seq2seq-lm"])
    files, native = (hub.storage.contents("org/vanilla-seq2seq-lm", revision) for revision in ("main", "native"))
    assert files["config.json"] != native["config.json"] and b"MarianMTModel" in native["config.json"]
    assert not any(path.endswith(".py") for path in native)
    card, code = files["README.md"].decode(), {path: files[path] for path in files if path.endswith(".py")}
    assert code.keys() == {"configuration_zoo.py", "modeling_zoo.py"}
    assert all(f"| `{hashlib.sha256(text).hexdigest()}` |" in card for text in code.values())
    assert 'AutoModelForSeq2SeqLM.from_pretrained("org/vanilla-seq2seq-lm", trust_remote_code=True)' in card
    assert 'AutoModelForSeq2SeqLM.from_pretrained("org/vanilla-seq2seq-lm", revision="native")  # marian' in card
    for target in ("bundle", "marian"):
        assert f"| {target} | yes, without the zoo, on random padded batches | " in card
