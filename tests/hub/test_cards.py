import json
import shutil
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

import zoo
from zoo.analysis.drawing import draw, to_text
from zoo.analysis.measuring import flops_per_token
from zoo.hub import records
from zoo.hub.addresses import parse_address
from zoo.hub.cards import LENGTH, CardFacts, write_card
from zoo.training.saving import keep_report

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
    result = records.find_result(folder)
    facts = CardFacts(("pt",), "mit", records.recipe_of(result), tuple(records.results_of(result["report"])))
    text = write_card(folder, parse_address("org/model@v2"), facts)
    data = ModelCard(text).data
    assert (data.license, data.library_name, data.pipeline_tag) == ("mit", "transformer-zoo", "text2text-generation")
    assert data.tags == ["transformer-zoo", "vanilla", "pt"]
    assert {result.metric_type: result.metric_value for result in data.eval_results} == {"bleu": 31.2, "loss": 1.1}
    parameters = zoo.load(folder).num_parameters()
    for sentence in (
        "Vaswani et al. 2017",
        f"| Parameters | {parameters:,} |",
        "self-attention",
        "| `cross-attention-reuses-self` | ",
        'zoo.load("hf-hub:org/model@v2")',
        'AutoModelForSeq2SeqLM.from_pretrained("org/model", revision="v2")',
        "| Training tokens | 123,456 |",
        "| transformer-zoo | ",
    ):
        assert sentence in text, sentence


def test_a_model_in_the_folder_of_another_has_none_of_its_results(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "trained")
    shutil.copy(folder.parent / "result.json", tmp_path / "trained")
    shutil.copytree(folder, tmp_path / "trained/changed")
    assert records.find_results(tmp_path / "trained") and records.find_results(folder)
    assert (
        records.find_results(tmp_path / "trained/changed") == [] == [*records.find_result(tmp_path / "trained/changed")]
    )


def test_weights_that_are_saved_over_others_have_none_of_their_results(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "result.json").write_text(json.dumps({"seed": 3}))
    keep_report(tmp_path, REPORT)
    result = records.find_result(tmp_path)
    assert result["report"]["steps"] == REPORT["steps"] and len(records.find_results(tmp_path)) == 2
    records.keep_evaluation(tmp_path, {"task": "translation", "loss": 2.5}, "mine")
    assert [found["metric_value"] for found in records.find_results(tmp_path)] == [2.5]
    zoo.load(tmp_path).save_pretrained(tmp_path)
    assert records.find_result(tmp_path) == result and len(records.find_results(tmp_path)) == 1
    zoo.build("vanilla@tiny+cross-attention-reuses-self", vocab_size=37, seed=1).save_pretrained(tmp_path)
    assert records.find_result(tmp_path) == {"seed": 3} and records.find_results(tmp_path) == []


def test_a_card_makes_nothing_up(folder: Path) -> None:
    text = write_card(folder, parse_address("org/model"), CardFacts())
    data = ModelCard(text).data
    assert data.license is None and data.eval_results is None
    for section in ("Training", "Evaluation"):
        assert text.partition(f"## {section}\n")[2].lstrip().startswith("Not recorded.")
    assert "None was pushed." in text


@pytest.mark.parametrize(
    "name", ["mixtral-style@tiny:num_experts=5,num_experts_per_tok=1", "vanilla@tiny", "albert-style@tiny"]
)
def test_a_card_has_the_operations_and_the_drawing_of_its_model(name: str, tmp_path: Path) -> None:
    """Of experts those that a token sees, and of stacks a token passes one."""
    model = zoo.build(name)
    model.save_pretrained(tmp_path)
    text = write_card(tmp_path, parse_address("org/model"), CardFacts())
    flops = round(flops_per_token(model.config, LENGTH).forward)
    assert f"| FLOPs per token, forward | {flops:,}, in texts of {LENGTH} tokens |" in text
    assert f"```text\n{to_text(draw(name))}\n```" in text


@pytest.mark.parametrize("name", ["deepseek-moe@tiny", "gpt2-style@tiny", "t5-style@tiny"])
def test_a_card_has_the_parameters_of_its_model_however_its_files_hold_them(name: str, tmp_path: Path) -> None:
    """Biases that balance experts are no parameters; exports have no tensors to count, packed weights other ones."""
    model, address = zoo.build(name), parse_address("org/model")
    model.save_pretrained(tmp_path)
    shown = f"\n| Parameters | {model.num_parameters():,} |\n| FLOPs per token"
    assert shown in write_card(tmp_path, address, CardFacts())
    (tmp_path / "model.safetensors").rename(tmp_path / "model.onnx")
    assert shown in write_card(tmp_path, address, CardFacts())
    other = {"model_type": "llama", "quantization_config": {"quant_method": "bitsandbytes"}}
    (tmp_path / "config.json").write_text(json.dumps(other))
    assert "Parameters" not in write_card(tmp_path, address, CardFacts())


POSITIONS = "llama-style@tiny:classifier_positions=4,classifier_pooling=last"


@pytest.mark.parametrize(
    ("name", "task", "pipeline", "limit"),
    [
        (POSITIONS, "sequence-classification", None, "Labels 4 positions of a text"),
        (POSITIONS, "causal-lm", "text-generation", ""),
        ("gpt-bert-style@tiny", "masked-lm", None, "Predicts a masked token one position earlier"),
    ],
)
def test_a_model_is_offered_to_pipelines_that_read_its_output(
    name: str, task: str, pipeline: str | None, limit: str, tmp_path: Path
) -> None:
    model = zoo.build(name, task)
    model.save_pretrained(tmp_path)
    text = write_card(tmp_path, parse_address("org/model"), CardFacts())
    assert ModelCard(text).data.pipeline_tag == pipeline and limit in text
    assert limit or "pipeline for" not in text
    assert f"{model.config.architectures[0].replace('Zoo', 'AutoModel')}.from_pretrained" in text


def test_a_variant_that_is_not_there_still_has_a_card(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "variant": "my-own", "provider": "zoo-my-own"}))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    text = write_card(tmp_path, parse_address("org/model"), CardFacts())
    assert "pip install transformer-zoo zoo-my-own" in text
    assert "| plugin zoo-my-own | not installed when pushed |" in text


HOSTILE = "<script>x</script>`|*[a](http://evil)\n# b"


def test_a_card_shows_the_content_of_files_and_executes_none(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    for key, value in config.items():
        if isinstance(value, str) and key != "model_type":
            config[key] = HOSTILE
    config |= {"provider": HOSTILE, "quirks": [HOSTILE], "position": {HOSTILE: 1}, "transformers_version": HOSTILE}
    (tmp_path / "config.json").write_text(json.dumps(config))
    scores = {HOSTILE: {"name": HOSTILE, "value": 1, "signature": HOSTILE}}
    report = {"task": HOSTILE, "device": HOSTILE, "heldout_examples": HOSTILE, "scores": scores, "seed": [HOSTILE]}
    result = {"report": report, "recipe": {"model": {HOSTILE: HOSTILE}}, "data": {"source": {"data": HOSTILE}}}
    facts = CardFacts((), None, records.recipe_of(result), tuple(records.results_of(report)))
    text = write_card(tmp_path, parse_address("org/model"), facts).split("---\n", 2)[2]
    assert "&#60;script&#62;" in text
    assert (
        not any(part in text for part in ("<script", "[a]", "http://", "\n# b"))
        and "pip install transformer-zoo`" in text
    )


WRONG = [None, 5, 10**400, "x", [1], {"value": "x"}, {"a": 1}]
WRONG += [{"a": {"value": value}} for value in (float("nan"), 10**400, [1])]


def test_numbers_of_wrong_types_are_left_out(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    for wrong in WRONG:
        numbers = {"scores": wrong, "heldout_loss": wrong, "steps": wrong, "task": wrong}
        entry = {"task": wrong, "data": wrong, "scores": wrong, "loss": wrong}
        parts = {"report": numbers, "recipe": wrong, "data": wrong}
        deeper = {"source": wrong, "train": wrong}
        reports = [{"report": wrong, "recipe": {"tokenizer": wrong}, "data": deeper}, wrong, parts]
        evaluations = [{"evaluations": wrong}, wrong, {"evaluations": [entry, wrong]}]
        for report, evaluation in zip(reports, evaluations, strict=True):
            (tmp_path / "result.json").write_text(json.dumps(report))
            (tmp_path / "evaluations.json").write_text(json.dumps(evaluation))
            records.recipe_of(records.find_result(tmp_path))
            records.without_places(records.find_result(tmp_path))
            assert all(isinstance(result["metric_value"], float) for result in records.find_results(tmp_path))
            records.keep_evaluation(tmp_path, {"task": "copy", "scores": {}}, "mine")
            assert records.find_evaluations(tmp_path)[-1]["data"] == "mine"
    assert "README.md" in zoo.push(tmp_path, "org/model", dry_run=True).files


def test_a_readme_is_kept_unless_it_is_to_be_overwritten(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "README.md").write_text("# Mine")
    kept = zoo.push(tmp_path, "org/model", dry_run=True)
    assert kept.files["README.md"] == len("# Mine")
    assert zoo.push(tmp_path, "org/model", dry_run=True, overwrite_card=True).files["README.md"] > 1000


def test_the_unit_of_a_loss_is_one_that_classifiers_have_too() -> None:
    found = records.results_of({"task": "text-classification", "heldout_loss": 0.5, "heldout_examples": 8})
    assert [result["metric_name"] for result in found] == ["Loss, nats per label"]
