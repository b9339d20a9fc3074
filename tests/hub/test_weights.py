"""Weights by name on the Hub: fetched, verified, converted and kept in one call, and found again offline."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from native_models import BART, ENCODER, GPT2, OPT, ROBERTA, T5, native_model
from preloaded import run_python

from zoo.building.weights import find_weights, locate_weights, locating
from zoo.hub import RepoIdError

from .conftest import READ, environment
from .loopback import LoopbackHub

CHECKPOINTS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "gpt2-style.openai": ("openai-community/gpt2", "GPT2", "LMHeadModel", GPT2),
    "gpt2-style.opt-125m": ("facebook/opt-125m", "OPT", "ForCausalLM", OPT),
    "bert-style.uncased": ("google-bert/bert-base-uncased", "Bert", "ForMaskedLM", {**ENCODER, "hidden_act": "gelu"}),
    "bert-style.roberta": ("FacebookAI/roberta-base", "Roberta", "ForMaskedLM", ROBERTA),
    "marian-style.en-de": (
        "Helsinki-NLP/opus-mt-en-de",
        "Marian",
        "MTModel",
        {**BART, "pad_token_id": 22, "decoder_start_token_id": 22, "eos_token_id": 0, "bos_token_id": 0},
    ),
    "t5-style.small": ("google-t5/t5-small", "T5", "ForConditionalGeneration", T5),
    "post-norm.bart": ("facebook/bart-base", "Bart", "ForConditionalGeneration", BART),
}
"""Small random checkpoints of the classes that the well-known ones have, in repositories of the same names."""

USE = """
import json, sys
from dataclasses import replace
import torch, zoo
from zoo.base.errors import ZooError
from zoo.registry import WEIGHTS, find_weights, register_weights
for name, source in json.load(open(sys.argv[1])).items():
    register_weights(replace(find_weights(name), source=source), override=True)
found = {}
for name in json.loads(sys.argv[2]):
    try:
        model = zoo.build(name)
        ids = torch.tensor([[3, 4, 5, 6]])
        inputs = {"input_ids": ids, **({"decoder_input_ids": ids} if model.config.is_encoder_decoder else {})}
        with torch.no_grad():
            found[name] = model(**inputs).logits.tolist()
    except ZooError as error:
        found[name] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""


@pytest.fixture
def sources(hub: LoopbackHub, tmp_path: Path) -> dict[str, Any]:
    """Repositories on the Hub, and what their models compute."""
    expected, places = {}, {}
    for name, (repo_id, family, head, fields) in CHECKPOINTS.items():
        native = native_model(family, head, fields, dtype=torch.float32).eval()
        folder = tmp_path / name
        native.save_pretrained(folder)
        files = {file.name: file.read_bytes() for file in folder.iterdir()}
        commit = hub.storage.put(repo_id, files)
        places[name] = f"hf-hub:{repo_id}@{commit}"
        ids = torch.tensor([[3, 4, 5, 6]])
        inputs = {"input_ids": ids, **({"decoder_input_ids": ids} if native.config.is_encoder_decoder else {})}
        with torch.no_grad():
            expected[name] = native(**inputs).logits
    (tmp_path / "places.json").write_text(json.dumps(places))
    return {"expected": expected, "places": places}


def use(hub: LoopbackHub, tmp_path: Path, names: list[str], **env: str) -> dict[str, Any]:
    """Build weights by name in a process of its own, as a user's script does."""
    command = ["-c", USE, str(tmp_path / "places.json"), json.dumps(names)]
    surroundings = environment(hub, tmp_path / "home", HF_TOKEN=READ, **env)
    done = run_python(command, env=surroundings)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_native_checkpoints_are_fetched_converted_kept_and_verified(
    hub: LoopbackHub, tmp_path: Path, sources: dict[str, Any]
) -> None:
    from zoo.registry import find_weights

    assert {name: find_weights(name).source.partition("@")[0] for name in CHECKPOINTS} == {
        name: place.partition("@")[0] for name, place in sources["places"].items()
    }, "the repositories that are tried are those that the definitions name"
    names = list(CHECKPOINTS)

    offline = use(hub, tmp_path, names[:1], HF_HUB_OFFLINE="1")
    repository, _, revision = sources["places"][names[0]].removeprefix("hf-hub:").partition("@")
    shown = f"are fetched from {hub.endpoint}/{repository}, revision {revision}, when there is a connection"
    assert offline[names[0]].startswith("HubAccessError") and shown in offline[names[0]]

    online = use(hub, tmp_path, names)
    for name in names:
        assert torch.allclose(torch.tensor(online[name]), sources["expected"][name], atol=1e-5), online[name]

    kept = tmp_path / "home" / "assets" / "transformer-zoo" / "weights"
    folders = {name: kept / name / sources["places"][name].partition("@")[2] for name in names}
    damaged, missing, half, unrecorded, *whole = names
    flip(folders[damaged] / "model.safetensors")
    (folders[missing] / "config.json").unlink()
    content = (folders[half] / "model.safetensors").read_bytes()
    (folders[half] / "model.safetensors").write_bytes(content[: len(content) // 2])
    (folders[unrecorded] / "weights.json").unlink()
    asked = len(hub.log)
    again = use(hub, tmp_path, names, HF_HUB_OFFLINE="1")
    assert len(hub.log) == asked
    for name in whole:
        assert again[name] == online[name]
    assert "is damaged: model.safetensors" in again[damaged] and "remove that folder" in again[damaged]
    assert "lacks config.json" in again[missing]
    assert "is damaged: model.safetensors" in again[half]
    assert "weights.json is missing" in again[unrecorded]
    record = json.loads((folders[whole[0]] / "weights.json").read_text())
    assert record["license"] == find_weights(whole[0]).license and record["fingerprint"]


@pytest.mark.slow
def test_other_content_than_the_name_promises_is_refused(
    hub: LoopbackHub, tmp_path: Path, sources: dict[str, Any]
) -> None:
    """Another variant under the name, and a commit that is not there: nothing is kept."""
    places = sources["places"]
    wrong = {
        "gpt2-style.openai": places["bert-style.uncased"],
        "t5-style.small": f"hf-hub:google-t5/t5-small@{'0' * 40}",
    }
    (tmp_path / "places.json").write_text(json.dumps(wrong))
    found = use(hub, tmp_path, list(wrong))
    assert "RevisionMissingError" in found["t5-style.small"] and "google-t5/t5-small" in found["t5-style.small"]
    assert "Error" in found["gpt2-style.openai"]
    kept = tmp_path / "home" / "assets" / "transformer-zoo" / "weights"
    assert not [file for file in kept.rglob("*") if file.is_file() and not file.name.endswith(".lock")]


def test_conversions_are_made_again_by_another_version_for_a_branch_and_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot, kept, asked = tmp_path / ("a" * 40), tmp_path / "kept", list[dict[str, Any]]()
    native_model("GPT2", "LMHeadModel", GPT2).save_pretrained(snapshot)
    kept.mkdir()
    monkeypatch.setattr("huggingface_hub.cached_assets_path", lambda *parts: kept)
    monkeypatch.setattr(locating, "pulled", lambda weights, **options: asked.append(options) or snapshot)
    weights = replace(find_weights("gpt2-style.openai"), source=f"hf-hub:org/name@{snapshot.name}")

    assert locate_weights(weights) == locate_weights(weights) == kept / snapshot.name
    assert asked == [{}]
    locate_weights(weights, force_download=True)
    assert asked == [{}, {"force_download": True}]
    record = kept / snapshot.name / "weights.json"
    content = json.loads(record.read_text())
    older = {**content, "versions": {**content["versions"], "transformer-zoo": "0.0.1"}}
    record.write_text(json.dumps(older))
    locate_weights(weights)
    assert len(asked) == 3 and json.loads(record.read_text()) == content
    assert locate_weights(replace(weights, source="hf-hub:org/name")) == kept / snapshot.name
    assert len(asked) == 4
    with pytest.raises(RepoIdError, match="names revision 'a+', but revision='v2' was given"):
        locate_weights(weights, revision="v2")


def flip(file: Path) -> None:
    """Change a bit in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
