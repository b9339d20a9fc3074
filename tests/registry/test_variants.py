"""Variants: what may be registered, how they are found, and what they set."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import zoo
from zoo.base.errors import (
    DeprecatedNameWarning,
    MissingPluginError,
    NameCollisionError,
    RegistrationError,
    UnknownTagError,
    UnknownTaskError,
)
from zoo.registry import SIZES, TASKS, Quirk, Registry, Task, Variant, list_variants, register, require_task

Variants = Registry[Variant]


def add(name: str, **arguments: Any) -> Callable[..., Any]:
    """Register a variant without presets or quirks."""

    def builder(config: object) -> object:
        """Build something."""
        return config

    builder.__qualname__ = name
    return register(name, **{"tasks": ("masked-lm",), "source": "a test", **arguments})(builder)


@pytest.fixture
def vanilla(variants: Variants) -> Variant:
    add(
        "vanilla",
        tasks=("seq2seq-lm", "sequence-classification"),
        defaults={"position": "learned", "dropout": 0.1, "hidden_act": "relu"},
        task_defaults={"sequence-classification": {"dropout": 0.2, "classifier_pooling": "max"}},
        presets={"small": {"hidden_size": 100}, "huge": {"hidden_size": 9999}},
        quirks={
            "wrong_scale": Quirk("Divides by the wrong number.", overrides={"attention_scale": "hidden-size"}),
            "reuses-self": "Uses the wrong weights.",
            "relu-is-gelu": Quirk("Another activation.", {"hidden_act": "gelu"}),
        },
    )
    return variants.get("vanilla")


class TestRegister:
    def test_the_builder_is_returned_as_it_is(self, variants: Variants) -> None:
        def builder(config: object) -> object:
            return config

        assert register("plain", tasks=("masked-lm",), source="a test")(builder) is builder
        assert variants.get("plain").builder is builder

    def test_the_docstring_becomes_summary_and_description(self, variants: Variants) -> None:
        @register("plain", tasks=["masked-lm"], source="a test")
        def builder(config: object) -> object:
            """Say it in a line.

            And then
            in more.
            """
            return config

        variant = variants.get("plain")
        assert (variant.summary, variant.description) == ("Say it in a line.", "And then\nin more.")

    def test_little_is_needed(self, variants: Variants) -> None:
        register("plain", tasks=("masked-lm",), source="a test")(lambda config: config)
        variant = variants.get("plain")
        assert (variant.summary, variant.description, variant.paper, variant.quirks) == ("", "", None, {})
        assert variant.presets == SIZES
        assert variant.origin.module == __name__

    def test_a_single_word_is_a_tuple_of_one(self, variants: Variants) -> None:
        add("plain", tasks="causal-lm", tags="decoder", aliases="simple", limits="No cache.")
        variant = variants.get("simple")
        assert (variant.tasks, variant.tags, variant.aliases) == (("causal-lm",), ("decoder",), ("simple",))
        assert variant.limits == ("No cache.",)

    def test_tasks_may_be_members_of_the_enum(self, variants: Variants) -> None:
        add("plain", tasks=(Task.CAUSAL_LM,))
        assert [type(task) for task in variants.get("plain").tasks] == [str]

    @pytest.mark.parametrize("tasks", [(), []])
    def test_a_task_is_needed(self, variants: Variants, tasks: Any) -> None:
        with pytest.raises(RegistrationError, match="'plain' was given no task"):
            add("plain", tasks=tasks)

    @pytest.mark.parametrize("arguments", [{"tasks": ("causal_lm",)}, {"task_defaults": {"causal-lm": {}}}])
    def test_tasks_are_checked(self, variants: Variants, arguments: dict[str, Any]) -> None:
        with pytest.raises(UnknownTaskError, match=r"'causal[-_]lm'.*valid: .*masked-lm"):
            add("plain", **arguments)
        assert "plain" not in variants

    @pytest.mark.parametrize(
        "arguments",
        [
            {"quirks": {"faithful": "All of them."}},
            {"quirks": {"a b": "A blank."}},
            {"presets": {"a@b": {}}},
            {"presets": {"faithful": {}}},
        ],
    )
    def test_quirks_and_presets_must_be_words(self, variants: Variants, arguments: dict[str, Any]) -> None:
        with pytest.raises(RegistrationError, match="calls a quirk or preset"):
            add("plain", **arguments)

    def test_a_taken_name_is_refused_unless_overridden(self, variants: Variants) -> None:
        first = add("plain")

        def other(config: object) -> object:
            return config

        with pytest.raises(NameCollisionError, match=f"variant 'plain' of {__name__}"):
            register("plain", tasks=("masked-lm",), source="a test")(other)
        assert variants.get("plain").builder is first
        register("plain", tasks=("masked-lm",), source="a test", override=True)(other)
        assert variants.get("plain").builder is other

    def test_a_notebook_cell_may_run_again(self, variants: Variants) -> None:
        first, second = add("plain"), add("plain")
        assert variants.get("plain").builder is second is not first


class TestData:
    FACTS: ClassVar[dict[str, Any]] = {"tasks": ("causal-lm",), "source": "a test"}

    def test_a_summary_makes_an_entry_without_a_function(self, variants: Variants) -> None:
        register("plain", "Say it in a line.\n\nAnd in more.", **self.FACTS)
        variant = variants.get("plain")
        assert (variant.summary, variant.description) == ("Say it in a line.", "And in more.")
        assert variant.builder(None) == zoo.models.Transformer()
        assert variant.place is not None and variant.place[0] == __file__

    def test_a_builder_is_imported_when_it_is_used(
        self, variants: Variants, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.syspath_prepend(tmp_path)
        (tmp_path / "late_builder.py").write_text("def build(config):\n    return config\n")
        register("plain", "A line.", builder="late_builder:build", **self.FACTS)
        assert "late_builder" not in sys.modules
        assert variants.get("plain").builder(3) == 3
        del sys.modules["late_builder"]


def test_the_built_in_variants_import_neither_torch_nor_transformers() -> None:
    program = "import sys, zoo; assert zoo.list_variants(); print({'torch', 'transformers'} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "set()\n"
    )


class TestList:
    @pytest.fixture(autouse=True)
    def _some(self, variants: Variants) -> None:
        add("pre-norm", tasks=TASKS, tags=("norm", "modern"), aliases=("preln",))
        add("post-norm", tasks=TASKS, tags=("norm",))
        add("gpt2-style", tasks=("causal-lm",), tags=("decoder",))
        add("old-norm", tasks=TASKS, tags=("norm",), deprecated="use 'post-norm'")

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ({}, ["gpt2-style", "post-norm", "pre-norm"]),
            ({"pattern": "*-norm"}, ["post-norm", "pre-norm"]),
            ({"pattern": "p??-norm"}, ["pre-norm"]),
            ({"pattern": "pre-norm"}, ["pre-norm"]),
            ({"pattern": "PRE*"}, []),
            ({"pattern": ["pre*", "gpt*"]}, ["gpt2-style", "pre-norm"]),
            ({"pattern": "!*-norm"}, ["gpt2-style"]),
            ({"pattern": ["*-norm", "!post*"]}, ["pre-norm"]),
            ({"pattern": []}, ["gpt2-style", "post-norm", "pre-norm"]),
            ({"task": "causal-lm"}, ["gpt2-style", "post-norm", "pre-norm"]),
            ({"task": "masked-lm"}, ["post-norm", "pre-norm"]),
            ({"tag": "norm"}, ["post-norm", "pre-norm"]),
            ({"tag": "norm", "pattern": "po*", "task": Task.CAUSAL_LM}, ["post-norm"]),
        ],
    )
    def test_patterns_tasks_and_tags(self, arguments: dict[str, Any], expected: list[str]) -> None:
        assert list_variants(**arguments) == expected

    def test_an_unknown_task_is_refused(self) -> None:
        with pytest.raises(UnknownTaskError, match="unknown task 'causallm'; .*did you mean 'causal-lm'"):
            list_variants(task="causallm")

    def test_an_unknown_tag_is_refused(self) -> None:
        with pytest.raises(UnknownTagError, match="unknown tag 'norms'; valid: decoder, modern, norm; did you mean"):
            list_variants(tag="norms")


class TestLookUp:
    def test_a_deprecated_variant_works_and_warns(self, variants: Variants) -> None:
        add("old", deprecated="use 'new'")
        with pytest.warns(DeprecatedNameWarning, match="variant 'old' is deprecated: use 'new'"):
            assert variants.get("old").deprecated == "use 'new'"

    def test_a_missing_provider_names_what_to_install(self, variants: Variants) -> None:
        with pytest.raises(
            MissingPluginError, match="plugin 'zoo-wave', which is not installed; run `pip install zoo-"
        ):
            variants.get("wave", provider="zoo-wave")

    def test_a_provider_that_is_installed_but_switched_off(
        self, variants: Variants, install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install("zoo-wave", "")
        monkeypatch.setenv("ZOO_PLUGINS", "")
        with pytest.raises(MissingPluginError, match=r"installed version 1\.2 did not register it; .*ZOO_PLUGINS"):
            variants.get("wave", provider="zoo-wave")

    def test_a_provider_does_not_matter_where_the_variant_is_known(self, variants: Variants, vanilla: Variant) -> None:
        assert variants.get("vanilla", provider="zoo-wave") is vanilla


class TestSettings:
    def test_tasks_change_defaults(self, vanilla: Variant) -> None:
        assert vanilla.settings() == {"position": "learned", "dropout": 0.1, "hidden_act": "relu"}
        assert vanilla.settings("sequence-classification") == {
            "position": "learned",
            "dropout": 0.2,
            "hidden_act": "relu",
            "classifier_pooling": "max",
        }

    def test_presets_are_added_to_the_standard_sizes(self, vanilla: Variant) -> None:
        assert vanilla.settings(preset="small") == {**vanilla.defaults, **SIZES["small"], "hidden_size": 100}
        assert vanilla.settings(preset="huge") == {**vanilla.defaults, "hidden_size": 9999}
        assert vanilla.settings(preset="tiny") == {**vanilla.defaults, **SIZES["tiny"]}

    def test_quirks_come_last(self, vanilla: Variant) -> None:
        assert vanilla.settings(quirks=("relu-is-gelu",))["hidden_act"] == "gelu"
        assert vanilla.settings(faithful=True) == {
            "position": "learned",
            "dropout": 0.1,
            "hidden_act": "gelu",
            "attention_scale": "hidden-size",
        }

    def test_what_is_returned_may_be_changed(self, vanilla: Variant) -> None:
        vanilla.settings()["position"] = "none"
        assert vanilla.settings()["position"] == "learned"

    def test_quirks_are_named_with_hyphens_and_ordered_as_declared(self, vanilla: Variant) -> None:
        assert list(vanilla.quirks) == ["wrong-scale", "reuses-self", "relu-is-gelu"]
        assert vanilla.check_quirks(("relu-is-gelu", "wrong_scale")) == ("wrong-scale", "relu-is-gelu")
        assert vanilla.check_quirks("reuses-self") == ("reuses-self",)
        assert vanilla.check_quirks(("reuses-self",), faithful=True) == tuple(vanilla.quirks)

    def test_the_first_task_is_the_default(self, vanilla: Variant) -> None:
        assert vanilla.default_task == vanilla.check_task() == vanilla.check_task("seq2seq-lm") == "seq2seq-lm"


class TestTasks:
    def test_a_task_is_its_name(self) -> None:
        assert [str(task) for task in Task] == list(TASKS) == list(Task)
        assert len(TASKS) == 6
        assert {type(require_task(task)) for task in (*TASKS, *Task)} == {str}
