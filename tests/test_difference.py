import pytest
from every_variant import EACH

import zoo
from zoo.analysis.diff import diff
from zoo.base.errors import ConfigError, UnsupportedTaskError


def axes(a: str, b: str, task: str | None = None) -> dict[str, tuple[object, object]]:
    return {found.axis: (found.a, found.b) for found in diff(a, b, task)}


@pytest.mark.parametrize("name", EACH)
def test_nothing_differs_from_itself(name):
    assert diff(f"{name}@tiny", f"{name}@tiny") == []


@pytest.mark.parametrize("name", ["marian-style", "gemma3-style", "vanilla+faithful", "deepseek-v3-style"])
def test_a_saved_model_differs_as_its_variant_does(name, tmp_path):
    task = "causal-lm" if name.startswith(("gemma", "deep")) else "seq2seq-lm"
    given = f"{name}@tiny" if "+" not in name else "vanilla@tiny+faithful"
    model = zoo.build(given, task, vocab_size=97)
    model.save_pretrained(tmp_path)
    folder = str(tmp_path)
    assert diff(folder, f"{given}:vocab_size=97", task) == diff(folder, folder) == []
    sizes = model.num_parameters(), zoo.build(given, task, vocab_size=98).num_parameters()
    assert axes(folder, f"{given}:vocab_size=98") == {"vocab_size": (97, 98), "parameters": sizes}
    with pytest.raises(ConfigError, match=f"is for {task}: leave the task out"):
        diff(folder, given, "feature-extraction")


@pytest.mark.parametrize(
    ("change", "task", "expected"),
    [
        ("dropout=0.3", None, {"dropout"}),
        ("hidden_size=256,sizes=fixed", "seq2seq-lm", {"hidden_size", "parameters"}),
        ("hidden_size=256", "seq2seq-lm", {"hidden_size", "intermediate_size", "num_attention_heads", "parameters"}),
        ("num_hidden_layers=2", "seq2seq-lm", {"num_hidden_layers", "parameters"}),
        ("classifier_pooling=max", None, set()),
        ("classifier_pooling=max", "sequence-classification", {"classifier_pooling"}),
    ],
)
def test_settings_that_follow_others_or_are_of_another_head_are_no_axes(change, task, expected):
    assert set(axes("pre-norm", f"pre-norm:{change}", task)) == expected


def test_quirks_are_axes_and_show_what_they_set():
    (found,) = diff("vanilla", "vanilla+dropout-on-the-skip")
    assert (found.axis, found.kind, found.a, found.b) == ("dropout-on-the-skip", "quirk", False, True)
    assert axes("vanilla", "vanilla+scores-scaled-by-model-width") == {
        "attention_scale": ("head-dim", "hidden-size"),
        "scores-scaled-by-model-width": (False, True),
    }


@pytest.mark.parametrize(
    ("a", "b", "axis", "values"),
    [
        ("pre-norm", "pre-norm:dropout=0.3", "dropout", (0.1, 0.3)),
        ("pre-norm@tiny", "pre-norm@tiny:feed_forward=moe", "num_experts", (None, 8)),
        ("pre-norm@tiny:feed_forward=moe", "pre-norm@tiny:feed_forward=moe,num_experts=5", "num_experts", (8, 5)),
        ("pre-norm", "post-norm", "norm_placement", ("pre", "post")),
        ("nlpt-encoder", "nlpt-encoder+padding-is-attended", "attention_mask", ("usual", "no_mask")),
        ("marian-style", "llama-style", "stack", ("encoder-decoder", "decoder")),  # both extract features
        ("bert-style", "marian-style", "stack", ("encoder", "encoder-decoder")),
    ],
)
def test_settings_code_and_stacks_are_axes(a, b, axis, values):
    assert axes(a, b)[axis] == values


def test_a_task_that_one_cannot_do_is_refused():
    with pytest.raises(UnsupportedTaskError, match="marian-style"):
        diff("pre-norm", "marian-style", "causal-lm")


def test_differences_print_as_a_table():
    found = zoo.diff("post-norm", "pre-norm")
    assert str(found).splitlines()[0].split() == ["post-norm", "pre-norm"] and "norm_placement" in str(found)
    assert str(zoo.diff("pre-norm", "pre-norm")) == "pre-norm and pre-norm do not differ." and found == list(found)
