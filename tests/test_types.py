"""What type checkers know of the public names: mypy reads this file too, and refuses a comment that ignores nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from typing_extensions import assert_type

import zoo
from zoo.models import ZooForCausalLM, ZooForMaskedLM


def test_a_model_is_known_by_its_task(tmp_path: Path) -> None:
    model = zoo.build("gpt2-style@tiny", "causal-lm", vocab_size=32)
    assert type(assert_type(model, ZooForCausalLM)) is ZooForCausalLM
    model.save_pretrained(tmp_path)
    loaded = zoo.load(tmp_path, "causal-lm")
    assert_type(loaded, ZooForCausalLM).generate(max_new_tokens=1)
    assert_type(zoo.build("bert-style@tiny", "masked-lm", vocab_size=32), ZooForMaskedLM)


def test_a_model_whose_task_is_not_written_may_generate() -> None:
    model = zoo.build("gpt2-style@tiny", vocab_size=32)
    assert type(model) is ZooForCausalLM
    model.generate(max_new_tokens=1)


def test_submodules_are_there_without_an_import_of_their_own() -> None:
    assert zoo.tasks.Kind.TEXT.usual_names[0] == "text"
    assert zoo.inside.__name__ == "zoo.inside"


def test_a_misspelt_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'zoo' has no attribute 'biuld'"):
        zoo.biuld  # type: ignore[attr-defined]  # noqa: B018
