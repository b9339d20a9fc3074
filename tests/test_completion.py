"""Completion in editors and notebooks: jedi completes the keyword arguments and models that type checkers know."""

import time
from collections.abc import Iterator
from pathlib import Path

import jedi
import pytest

import zoo

SETTINGS = [
    ("zoo.config('llama-style', hid", "hidden_size="),
    ("zoo.build('llama-style', hid", "hidden_size="),
    ("zoo.build('mixtral-style', 'causal-lm', num_experts_per", "num_experts_per_tok="),
    ("zoo.build('llama-style', attn_", "attn_implementation="),
    ("zoo.train('llama-style', learn", "learning_rate="),
    ("zoo.train('llama-style', early_stopping_p", "early_stopping_patience="),
    ("zoo.compare(['llama-style'], learn", "learning_rate="),
    ("zoo.compare(['llama-style'], match_t", "match_to="),
]


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep jedi's files in a folder of this process: jedi reads a file that another process has half written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jedi.settings, "cache_directory", str(folder := tmp_path_factory.mktemp("jedi")))
        yield folder


@pytest.mark.parametrize(("code", "completion"), SETTINGS)
def test_keyword_arguments_are_completed(code: str, completion: str) -> None:
    assert completion in {one.name for one in jedi.Script(f"import zoo\n{code}").complete()}
    assert completion in {one.name for one in jedi.Interpreter(code, [{"zoo": zoo}]).complete()}


@pytest.mark.parametrize("made", ["zoo.build('llama-style')", "zoo.build('llama-style', 'causal-lm')", "zoo.load('x')"])
@pytest.mark.parametrize(
    ("code", "completion"),
    [("gener", "generate"), ("parame", "parameters"), ("save_pre", "save_pretrained"), ("config.hid", "hidden_size")],
)
def test_attributes_of_models_are_completed_within_seconds(made: str, code: str, completion: str) -> None:
    began = time.process_time()
    assert completion in {one.name for one in jedi.Script(f"import zoo\nm = {made}\nm.{code}").complete()}
    assert time.process_time() - began < 10, "PreTrainedModel takes jedi minutes"
