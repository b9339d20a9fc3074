"""Exports to CTranslate2: what they compute and write, and which settings are refused."""

import importlib
import os
from types import SimpleNamespace

import pytest
import torch
from command_line import run
from native_models import zoo_model
from transformers import GenerationConfig

import zoo
from zoo.base.errors import ConfigError, UnsupportedOperationError, ZooError
from zoo.converters import TARGETS, targets
from zoo.converters.ctranslate2.planning import options_of
from zoo.converters.ctranslate2.specification import write_ctranslate2
from zoo.converters.errors import VerificationError
from zoo.training.generation import generate, load_checkpoint
from zoo.training.generation.engines import IN_CTRANSLATE2

from .conftest import TEXTS

# One export serves most tests.
pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("engines")]

ENCODER = dict(is_decoder=False, is_encoder_decoder=False)

CTRANSLATE2 = {
    "d2l": ("d2l-style", "seq2seq-lm", {}),
    "vanilla-faithful": ("vanilla", "seq2seq-lm", dict(quirks=("masked-rows-are-uniform",))),
    "t5": ("t5-style", "seq2seq-lm", {}),
    "gated": ("pre-norm", "seq2seq-lm", dict(position="rotary", decoder_attention_heads=2, feed_forward="swiglu")),
    "finished-post": ("post-norm", "seq2seq-lm", dict(final_norm=True, logit_scale=0.5, lm_head_bias=True)),
    "gpt2": ("gpt2-style", "causal-lm", {}),
    "gptj": ("gptj-style", "causal-lm", dict(head_dim=8)),
    "alibi": ("alibi-decoder", "causal-lm", {}),
    "sandwich": ("sandwich-norm", "causal-lm", {}),
    "deepnorm": ("deepnorm", "causal-lm", {}),
    "llama": ("llama-style", "causal-lm", dict(num_key_value_heads=2, final_logit_softcapping=5.0, logit_scale=0.5)),
    "qk-norm": ("qk-norm", "causal-lm", {}),
    "nlpt": ("nlpt-encoder", "feature-extraction", {}),
    "bert": ("bert-style", "feature-extraction", {}),
    "t5-encoder": ("t5-style", "feature-extraction", ENCODER),
    "t5-normed": ("t5-style", "feature-extraction", dict(embedding_norm=True, embedding_norm_eps=1e-2, **ENCODER)),
    "bert-scaled": ("bert-style", "feature-extraction", dict(type_vocab_size=3, scale_embedding=True)),
}


@pytest.mark.parametrize("case", CTRANSLATE2)
def test_ctranslate2_computes_the_same(case, tmp_path):
    """Probabilities, and tokens of 100 inputs, greedily and with beams: all of that is what an export verifies."""
    name, task, settings = CTRANSLATE2[case]
    model = zoo_model(name, task, dtype=torch.float32, **settings)
    report = zoo.export(model, tmp_path / "out", "ctranslate2")
    assert report.difference.float32 < 1e-5 * report.difference.largest
    assert report.difference.batches == 101  # one of them as long as the positions
    decodes = task != "feature-extraction"
    assert (report.difference.greedy, report.difference.beams) == ((True, True) if decodes else (None, None))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_wrong_ctranslate2_export_is_found(dtype, tmp_path, monkeypatch):
    model, other = (zoo_model("gpt2-style", dtype=torch.float32) for _ in range(2))
    with torch.no_grad():
        other.model.layers[1].mlp.up_proj.bias += 0.01
    monkeypatch.setattr(targets, "write_ctranslate2", lambda _, *given: write_ctranslate2(other, *given))
    with pytest.raises(VerificationError, match="CTranslate2 differs by"):
        zoo.export(model, tmp_path / "out", "ctranslate2", dtype=dtype)


@pytest.mark.parametrize("dtype", ["int8", "int16", "bfloat16"])
def test_smaller_weights_stay_near(dtype, tmp_path):
    model = zoo_model("marian-style", dtype=torch.float32)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    report = zoo.export(model, tmp_path / "out", "ctranslate2", dtype=dtype)
    assert 1e-5 < report.difference.float32 < 0.2  # also where sums of int8 products overflow in oneDNN
    assert any("CT2_USE_MKL=1" in note for note in report.notes) == dtype.startswith("int")
    assert f"stored as {dtype}" in (tmp_path / "out" / "README.md").read_text()
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())


def test_mkl_is_asked_for_before_the_library_is_imported(ctranslate2_folder, monkeypatch):
    monkeypatch.setattr("zoo.converters.ctranslate2.planning.overflows", lambda engine: True)
    for change in (monkeypatch.setenv, lambda name, _: monkeypatch.delenv(name)):  # so that it is as before afterwards
        change("CT2_USE_MKL", "")
    monkeypatch.setattr("zoo.converters.ctranslate2.planning.sys", SimpleNamespace(modules={}))
    asked = []

    def require(*_):
        asked.append(os.environ["CT2_USE_MKL"])
        return importlib.import_module("ctranslate2")

    for place in ("target", "ctranslate2.planning"):
        monkeypatch.setattr(f"zoo.converters.{place}.require", require)
    TARGETS.get("ctranslate2").load(ctranslate2_folder)
    assert asked == ["1"] * 3


def test_integer_weights_are_refused_where_the_library_was_imported_before(tmp_path, monkeypatch):
    model = zoo_model("marian-style", dtype=torch.float32)
    zoo.export(model, tmp_path / "int8", "ctranslate2", dtype="int8")
    zoo.export(model, tmp_path / "float32", "ctranslate2")
    monkeypatch.setattr("zoo.converters.ctranslate2.planning.overflows", lambda engine: True)
    monkeypatch.delenv("CT2_USE_MKL", raising=False)
    TARGETS.get("ctranslate2").load(tmp_path / "float32")
    with pytest.raises(
        ConfigError, match=r"was imported before the zoo, and would compute int8_float32 .* CT2_USE_MKL=1"
    ):
        TARGETS.get("ctranslate2").load(tmp_path / "int8")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_beams": 3, "num_return_sequences": 2, "early_stopping": True},
        {"num_beams": 3, "length_penalty": 0.2, "early_stopping": True},
        {"repetition_penalty": 1.5},
        {"min_new_tokens": 8, "no_repeat_ngram_size": 2},
    ],
)
def test_generate_runs_in_ctranslate2(translator, ctranslate2_folder, options):
    settings = dict(scores=True, max_new_tokens=9, **options)
    ours = generate(translator, TEXTS, **settings)
    exported = generate(ctranslate2_folder, TEXTS, **settings)
    at_once = generate(translator, TEXTS, engine="ctranslate2", **settings)
    for one, *others in zip(ours, exported, at_once, strict=True):
        for other in others:
            assert [c.text for c in one.candidates] == [c.text for c in other.candidates]
            assert [c.score for c in one.candidates] == pytest.approx([c.score for c in other.candidates], abs=1e-4)


def test_the_command_line_runs_in_ctranslate2(translator):
    ours, theirs = (run("generate", translator, *TEXTS, "--engine", engine) for engine in ("torch", "ctranslate2"))
    assert theirs.exit_code == 0, theirs.output
    assert theirs.stdout == ours.stdout


def test_settings_that_change_nothing_are_followed():
    written_by_a_trainer = GenerationConfig()
    written_by_a_trainer.update(**GenerationConfig._get_default_generation_params())
    config = zoo.config("pre-norm")
    assert options_of(written_by_a_trainer, config)["beam_size"] == 1
    with pytest.raises(ConfigError, match="does not follow typical_p"):
        options_of(GenerationConfig(do_sample=True, typical_p=0.5), config)


@pytest.mark.parametrize("options", [{"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 2}])
def test_repetitions_of_what_the_engine_does_not_see_are_refused(options):
    """Of a prompt, and of a start token that is an end as well."""
    settings, (name,) = GenerationConfig(**options), options
    assert options_of(settings, zoo.config("pre-norm", "seq2seq-lm"))[name] == options[name]
    ends = zoo.config("pre-norm", "seq2seq-lm", decoder_start_token_id=3, eos_token_id=3)
    for config in (zoo.config("gpt2-style"), ends):
        with pytest.raises(ConfigError, match=f"does not follow {name}"):
            options_of(settings, config)


@pytest.mark.parametrize(
    ("name", "value"), [("repetition_penalty", 1.5), ("no_repeat_ngram_size", 2), ("min_new_tokens", 5)]
)
def test_a_penalty_that_beams_apply_elsewhere_is_refused(name, value):
    """In transformers to log-probabilities, in the engine to logits: most texts of random models differ."""
    with pytest.raises(ConfigError, match=f"does not follow {name} with num_beams"):
        options_of(GenerationConfig(**{name: value}, num_beams=3), zoo.config("pre-norm", "seq2seq-lm"))


@pytest.mark.parametrize(("name", "value"), [("repetition_penalty", 1.5), ("no_repeat_ngram_size", 1)])
def test_repetitions_of_a_start_token_are_refused(name, value):
    """That is a part of the text in transformers, and not in the engine."""
    model = zoo_model("pre-norm", "seq2seq-lm", dtype=torch.float32, lm_head_bias=True)
    with torch.no_grad():
        model.lm_head.bias[model.config.decoder_start_token_id] = 100.0
    engine, ids = IN_CTRANSLATE2.run(model, None), torch.tensor([[5, 6, 7]])
    assert engine.generate(ids, max_new_tokens=4).tolist() == model.generate(ids, max_new_tokens=4).tolist()
    with pytest.raises(ConfigError, match=f"CTranslate2 repeats the beginning of a text, .* which {name} prevents"):
        engine.generate(ids, max_new_tokens=4, **{name: value})


def test_what_an_engine_cannot_follow_is_refused(translator, ctranslate2_folder):
    with pytest.raises(ConfigError, match="does not follow num_beam_groups|does not follow penalty_alpha"):
        generate(ctranslate2_folder, "the cat", penalty_alpha=0.5)
    with pytest.raises(ConfigError, match="valid: ctranslate2"):
        load_checkpoint(ctranslate2_folder, engine="onnx")
    with pytest.raises(ConfigError, match="unknown engine 'tensorrt'"):
        load_checkpoint(ctranslate2_folder, engine="tensorrt")
    model, _ = load_checkpoint(ctranslate2_folder)
    with pytest.raises(UnsupportedOperationError, match="CTranslate2 returns no logits here"):
        model(torch.ones(1, 2, dtype=torch.long))
    with pytest.raises(UnsupportedOperationError, match="have to be the tokens that follow"):
        model(torch.ones(1, 2, dtype=torch.long), labels=torch.tensor([[5, -100, 6]]))
    asked = {"input_ids": torch.ones(1, 2, dtype=torch.long), "return_dict_in_generate": True}
    assert model.generate(**asked).sequences_scores is None, "no scores without output_scores"
    assert model.generate(**asked, output_scores=True).sequences_scores < 0
    for options, message in (
        ({"decoder_start_token_id": 5}, "does not follow decoder_start_token_id"),
        ({"decoder_input_ids": torch.tensor([[1, 5]])}, "does not follow decoder_input_ids"),
        ({"assistant_model": model}, "does not follow assistant_model"),
        ({"do_sample": True, "temperature": 0.0}, "temperature=0.0 is not valid"),
        ({"max_new_tokens": 0}, "max_new_tokens=0 is not valid"),
        ({"num_return_sequences": 2}, "number of hypotheses"),
        ({"attention_mask": torch.tensor([[0, -1e9]])}, "values below 0"),
    ):
        with pytest.raises(ZooError, match=message):
            model.generate(asked["input_ids"], **options)
    with pytest.raises(UnsupportedOperationError, match="CTranslate2Model was given as assistant_model"):
        zoo.load(translator).generate(asked["input_ids"], assistant_model=model)


LEFT, GAP, RIGHT = [0, 0, 1, 1, 1], [1, 1, 0, 1, 1], [1, 1, 1, 0, 0]


@pytest.mark.parametrize(
    ("name", "task", "follows"),
    [
        ("vanilla", "seq2seq-lm", [RIGHT]),
        ("t5-style", "seq2seq-lm", [RIGHT, LEFT]),
        ("gpt2-style", "causal-lm", [LEFT, GAP]),
        ("bert-style", "feature-extraction", [RIGHT]),
    ],
)
def test_padding_that_the_model_counts_is_followed_or_refused(name, task, follows, tmp_path):
    """The engine reads texts without padding, which the model may count as places."""
    model = zoo_model(name, task).float()
    zoo.export(model, tmp_path / "out", "ctranslate2")
    engine = TARGETS.get("ctranslate2").open(tmp_path / "out")
    ids = torch.tensor([[7, 8, 9, 10, 11]])

    def written(one, mask):
        given = {"input_ids": ids, "attention_mask": mask}
        if task == "feature-extraction":
            return one(**given).last_hidden_state[mask.bool()]
        return one.generate(**given, max_new_tokens=4, do_sample=False)[:, -4:]

    for mask in (torch.tensor([row]) for row in (LEFT, GAP, *([RIGHT] if task != "causal-lm" else []))):
        if mask[0].tolist() in follows:
            torch.testing.assert_close(written(engine, mask), written(model, mask), rtol=1e-4, atol=1e-4)
        else:
            with pytest.raises(UnsupportedOperationError, match="CTranslate2 reads texts without padding"):
                written(engine, mask)


def test_a_share_of_nothing_draws_the_best_token(ctranslate2_folder):
    options = {"max_new_tokens": 6, "do_sample": True, "top_p": 0.0}
    best = generate(ctranslate2_folder, TEXTS, max_new_tokens=6)
    assert generate(ctranslate2_folder, TEXTS, seed=1, **options) == best


def test_the_loss_of_a_decoder_is_that_of_the_labels_that_count(tmp_path):
    model = zoo_model("gpt2-style", dtype=torch.float32)
    zoo.export(model, tmp_path / "out", "ctranslate2")
    engine = TARGETS.get("ctranslate2").load(tmp_path / "out")
    ids, mask = torch.tensor([[5, 6, 7, 8, 9], [5, 4, 3, 2, 8]]), torch.ones(2, 5, dtype=torch.long)
    mask[1, 3:] = 0
    labels = ids.masked_fill(mask == 0, -100)
    labels[0, 3] = -100
    shifted = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
    shifted[0, -1] = 4  # which only the label has
    of_update = {"labels": labels, "num_items_in_batch": torch.tensor(11)}
    for given in ({"labels": labels}, {"labels": shifted, "shift_labels": shifted}, of_update):
        expected = model(input_ids=ids, attention_mask=mask, **given).loss
        torch.testing.assert_close(engine(input_ids=ids, attention_mask=mask, **given).loss, expected)
    packed = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 0, 1, 2]])
    with pytest.raises(UnsupportedOperationError, match="which exports do not separate"):
        engine(input_ids=ids, position_ids=packed, labels=ids)
    labels[0, 1] += 1
    with pytest.raises(UnsupportedOperationError, match="have to be the tokens that follow"):
        engine(input_ids=ids, labels=labels)
