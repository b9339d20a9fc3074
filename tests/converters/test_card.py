"""Cards of exports keep what the records know, and the tokenizer of a bundle loads as its card shows."""

import os
import re
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from preloaded import run_python

import zoo
from zoo.building.weights import locate
from zoo.converters.exporting import recorded
from zoo.converters.target import PLACE, TARGETS

NAME = "nlpt-encoder.language"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports") / "bundle"
    zoo.export(NAME, folder, "bundle", fresh_process=False)
    return folder


def test_a_card_keeps_licence_scores_and_task(bundle: Path) -> None:
    card = ModelCard.load(bundle / "README.md")
    assert (card.data.license, card.data.pipeline_tag) == ("mit", "text-classification")
    assert {"transformer-zoo", "nlpt-encoder"} <= set(card.data.tags)
    scores = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert scores["accuracy"] > 99
    for line in ("- Licence of the training data: MIT", "- Tokenizer: characters", f"| {scores['accuracy']} |"):
        assert line in card.text, line
    assert "great movie" in card.text.partition("## Limits")[2]


def test_scores_of_the_original_are_not_claimed_for_rounded_weights() -> None:
    model = zoo.load(NAME)
    data, sections = recorded(model, TARGETS.get("onnx"), locate(NAME), exact=False)
    assert data.eval_results is None and data.license == "mit"
    assert any(section.startswith("## Scores of the original") for section in sections)


def test_a_model_in_memory_has_its_task_and_no_licence() -> None:
    model = zoo.build("pre-norm@tiny", vocab_size=40, task="causal-lm")
    data, sections = recorded(model, TARGETS.get("bundle"), None, exact=True)
    assert (data.license, data.pipeline_tag, sections) == (None, "text-generation", [])


def test_the_tokenizer_of_a_bundle_loads_without_a_question_and_without_code(bundle: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (bundle / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if "AutoTokenizer" in block)
    program = (
        "import builtins, sys\n"
        "sys.modules['zoo'] = None\n"
        "asked = []\n"
        "builtins.input = lambda text='': asked.append(text) or 'n'\n"
        f"{code.replace(PLACE, str(bundle))}\n"
        "assert not asked and not any(name.startswith('transformers_modules.') for name in sys.modules)\n"
        "print(tokenizer.decode(tokenizer('hello')['input_ids'], skip_special_tokens=True))\n"
    )
    done = run_python(["-c", program], env=os.environ, cwd=bundle)
    assert done.stdout.split() == ["hello"], done.stderr
