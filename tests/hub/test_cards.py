from __future__ import annotations

import json
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

import zoo
from zoo.hub.addresses import parse_address
from zoo.hub.cards import CardFacts, write_card
from zoo.hub.records import find_result, recipe_of, results_of

REPORT = {
    "task": "translation",
    "seed": 3,
    "steps": 100,
    "train_tokens": 123456,
    "train_loss": 1.23456,
    "heldout_loss": 1.1,
    "heldout_examples": 200,
    "scores": {"bleu": {"name": "BLEU", "value": 31.2, "signature": "nrefs:1|case:mixed"}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("run")
    zoo.build("vanilla@tiny+cross-attention-reuses-self", vocab_size=37, seed=0).save_pretrained(run / "model")
    (run / "result.json").write_text(json.dumps({"report": REPORT}))
    return run / "model"


def test_a_card_tells_what_is_known(folder: Path) -> None:
    result = find_result(folder)
    facts = CardFacts(("pt",), "mit", recipe_of(result), tuple(results_of(result["report"])))
    text = write_card(folder, parse_address("org/model@v2"), facts)
    data = ModelCard(text).data
    assert (data.license, data.library_name, data.pipeline_tag) == ("mit", "transformer-zoo", "text2text-generation")
    assert data.tags == ["transformer-zoo", "vanilla", "pt"]
    assert {result.metric_type: result.metric_value for result in data.eval_results} == {"bleu": 31.2, "loss": 1.1}
    parameters = zoo.load(folder).num_parameters()
    for said in (
        "Vaswani et al. 2017",
        f"| Parameters | {parameters:,} |",
        "self-attention",
        "| `cross-attention-reuses-self` | ",
        'zoo.load("hf-hub:org/model@v2")',
        'AutoModelForSeq2SeqLM.from_pretrained("org/model", revision="v2")',
        "| Training tokens | 123,456 |",
        "| transformer-zoo | ",
    ):
        assert said in text, said


def test_a_card_makes_nothing_up(folder: Path) -> None:
    text = write_card(folder, parse_address("org/model"), CardFacts())
    data = ModelCard(text).data
    assert data.license is None and data.eval_results is None
    for section in ("Training", "Evaluation"):
        assert text.partition(f"## {section}\n")[2].lstrip().startswith("Not recorded.")
    assert "None was pushed." in text


def test_a_variant_that_is_not_there_still_has_a_card(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "variant": "my-own", "provider": "zoo-my-own"}))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    text = write_card(tmp_path, parse_address("org/model"), CardFacts())
    assert "pip install transformer-zoo zoo-my-own" in text
    assert "| plugin zoo-my-own | not installed when pushed |" in text


def test_a_readme_is_kept_unless_it_is_to_be_overwritten(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "README.md").write_text("# Mine")
    kept = zoo.push(tmp_path, "org/model", dry_run=True)
    assert kept.files["README.md"] == len("# Mine")
    assert zoo.push(tmp_path, "org/model", dry_run=True, overwrite_card=True).files["README.md"] > 1000
