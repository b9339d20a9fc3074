"""What type checkers know of the public names: mypy reads this file too, and refuses a comment that ignores nothing."""

from pathlib import Path
from typing import Any, assert_type

import pytest

import zoo
from zoo.base.errors import UnknownNameError, UnknownOverrideError, ZooError
from zoo.models import ZooForCausalLM, ZooForMaskedLM


def test_a_model_is_known_by_its_task(tmp_path: Path) -> None:
    model = zoo.build("gpt2-style@tiny", "causal-lm", vocab_size=32)
    assert type(assert_type(model, ZooForCausalLM)) is ZooForCausalLM
    model.save_pretrained(tmp_path)
    loaded = zoo.load(tmp_path, "causal-lm")
    assert_type(loaded, ZooForCausalLM).generate(max_new_tokens=1)
    assert_type(zoo.build("bert-style@tiny", "masked-lm", vocab_size=32), ZooForMaskedLM)


def test_a_model_with_no_literal_task_may_generate() -> None:
    model = zoo.build("gpt2-style@tiny", vocab_size=32)
    assert type(model) is ZooForCausalLM
    model.generate(max_new_tokens=1)


def test_submodules_are_there_without_an_import_of_their_own() -> None:
    assert zoo.data.tasks.Kind.TEXT.usual_names[0] == "text"
    assert zoo.inside.__name__ == "zoo.inside"


def test_a_misspelt_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'zoo' has no attribute 'biuld'"):
        zoo.biuld  # type: ignore[attr-defined]  # noqa: B018


def test_a_wrong_setting_is_a_type_error() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'rotary'"):
        zoo.build("pre-norm", position="rotery")  # type: ignore[call-overload]
    with pytest.raises(UnknownNameError, match="did you mean 'rotary'"):
        zoo.build("pre-norm", "causal-lm", position="rotery")  # type: ignore[call-overload]
    with pytest.raises(UnknownNameError, match="did you mean 'rotary'"):
        zoo.config("pre-norm", position="rotery")  # type: ignore[arg-type]
    with pytest.raises(UnknownOverrideError, match="did you mean 'hidden_size'"):
        zoo.config("pre-norm", hiden_size=64)  # type: ignore[call-arg]


def test_what_a_plugin_brings_is_no_type_error() -> None:
    settings: dict[str, Any] = {"position": "of-a-plugin", "its_own_setting": 3}
    with pytest.raises(ZooError, match="its_own_setting"):
        zoo.config("pre-norm", **settings)
    with pytest.raises(ZooError, match="of-a-plugin"):
        zoo.build("pre-norm:position=of-a-plugin", "causal-lm", hidden_size=64)
    with pytest.raises(ZooError, match="variant-of-a-plugin"):
        zoo.build("variant-of-a-plugin")
