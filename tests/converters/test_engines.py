"""Exports to other engines: ONNX and CTranslate2 compute and write what the model does."""

import json
import shutil

import onnx
import pytest
import torch
from command_line import run
from native_models import zoo_model
from transformers import GenerationConfig

import zoo
from zoo.base.errors import CheckpointError, ConfigError, UnsupportedOperationError, ZooError
from zoo.converters import TARGETS, plan_engines, targets
from zoo.converters.ctranslate2.planning import options_of
from zoo.converters.ctranslate2.specification import write_ctranslate2
from zoo.converters.errors import ExportError, MissingExtraError, VerificationError
from zoo.converters.onnx.graphs import write_onnx
from zoo.training.generation import generate, load_checkpoint
from zoo.training.generation.engines import IN_CTRANSLATE2

# One export to each engine serves most tests.
pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("engines")]

ENCODER = dict(is_decoder=False, is_encoder_decoder=False)
TEXTS = ["the cat sleeps", "dog", "a dog runs the cat", "sleeps the"]


@pytest.fixture(scope="module")
def exported_decoder(decoder, tmp_path_factory):
    """The decoder, its ONNX folder, and the report."""
    folder = tmp_path_factory.mktemp("decoder") / "onnx"
    return decoder, folder, zoo.export(decoder, folder, "onnx")


@pytest.mark.slow
@pytest.mark.parametrize("exported", ["onnx_folder", "openvino_folder"])
@pytest.mark.parametrize("options", [{}, {"num_beams": 3, "num_return_sequences": 2}], ids=["greedy", "beams"])
def test_graphs_write_what_the_model_does(unlimited, exported, options, request):
    ours, theirs = (
        generate(folder, TEXTS, batch_size=3, scores=True, max_new_tokens=9, **options)
        for folder in (unlimited, request.getfixturevalue(exported))
    )
    for one, other in zip(ours, theirs, strict=True):
        assert [c.text for c in one.candidates] == [c.text for c in other.candidates]
        assert [c.score for c in one.candidates] == pytest.approx([c.score for c in other.candidates], abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("exported", ["onnx_folder", "openvino_folder"])
def test_graphs_refuse_assisted_generation(exported, request):
    folder = request.getfixturevalue(exported)
    with pytest.raises(ConfigError, match="assisted generation is not supported"):
        generate(folder, TEXTS[:1], prompt_lookup_num_tokens=2)


@pytest.mark.slow
def test_onnx_takes_any_batch_and_length(unlimited, onnx_folder):
    model, exported = zoo.load(unlimited), TARGETS.get("onnx").open(onnx_folder)
    for rows, source, target in ((1, 1, 1), (1, 7, 2), (5, 2, 19), (2, 20, 6)):
        ids = torch.randint(3, model.config.vocab_size, (rows, source))
        given = {
            "input_ids": ids,
            "decoder_input_ids": torch.randint(3, model.config.decoder_vocab_size, (rows, target)),
        }
        mask = torch.ones_like(ids)
        mask[0, source // 2 + 1 :] = 0
        with torch.no_grad():
            ours = model(**given, attention_mask=mask, labels=given["decoder_input_ids"])
        theirs = exported(**given, attention_mask=mask, labels=given["decoder_input_ids"])
        assert float((ours.logits - theirs.logits).abs().max()) < 1e-5
        assert float(theirs.loss) == pytest.approx(float(ours.loss), abs=1e-5)
    with pytest.raises(UnsupportedOperationError, match="no output_attentions"):
        exported(**given, output_attentions=True)


@pytest.mark.slow
@pytest.mark.parametrize("exported", ["onnx_folder", "ctranslate2_folder", "openvino_folder"])
def test_evaluate_runs_an_exported_folder(exported, request):
    folder = request.getfixturevalue(exported)
    arguments = ("--data", folder.parent / "pairs.tsv", "--n-bootstrap", 1, "--quiet", "--json")
    ours, theirs = (run("evaluate", one, *arguments) for one in (folder.parent / "saved", folder))
    assert theirs.exit_code == 0, theirs.output
    ours, theirs = (json.loads(result.stdout[result.stdout.index("{") :]) for result in (ours, theirs))
    assert theirs["loss"] == pytest.approx(ours["loss"], abs=1e-5)
    assert theirs["outputs"] == ours["outputs"]


def test_onnx_computes_without_a_mask(exported_decoder):
    model, folder, _ = exported_decoder
    ids = torch.randint(3, model.config.vocab_size, (2, 7), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = model(input_ids=ids).logits
    torch.testing.assert_close(TARGETS.get("onnx").open(folder)(input_ids=ids).logits, expected, rtol=1e-4, atol=1e-4)


def test_graphs_refuse_packed_documents_and_embeddings(exported_decoder):
    loaded = TARGETS.get("onnx").open(exported_decoder[1])
    ids, packed = torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([[0, 1, 2, 0, 1]])
    with pytest.raises(UnsupportedOperationError, match="which exports do not separate"):
        loaded(input_ids=ids, position_ids=packed)
    one = torch.arange(5)[None]
    torch.testing.assert_close(loaded(input_ids=ids, position_ids=one).logits, loaded(input_ids=ids).logits)
    with pytest.raises(UnsupportedOperationError, match="have no inputs_embeds"):
        loaded(input_ids=ids, inputs_embeds=torch.zeros(1, 5, 8))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("gpt-bert-style@tiny", "masked-lm"),  # labels are those of the next tokens
        ("mixtral-style@tiny:output_router_logits=True", "causal-lm"),  # router logits are in no graph
        ("pre-norm@tiny:feed_forward=moe,output_router_logits=True", "seq2seq-lm"),
    ],
)
def test_the_loss_of_a_graph_is_that_of_its_model(name, task, tmp_path):
    model = zoo.build(name, task, vocab_size=20, seed=0)
    zoo.export(model, tmp_path / "out", "onnx")
    loaded, ids = TARGETS.get("onnx").open(tmp_path / "out"), torch.tensor([[5, 6, 7, 8], [9, 8, 7, 6]])
    assert not getattr(loaded.config, "output_router_logits", False)
    labels = ids.masked_fill(ids == 8, -100)
    routers = {"output_router_logits": False} if "moe" in name or "mixtral" in name else {}
    for given in ({}, {"num_items_in_batch": torch.tensor(11)}):
        expected = model(ids, labels=labels, **routers, **given).loss
        torch.testing.assert_close(loaded(ids, labels=labels, **given).loss, expected, rtol=1e-4, atol=1e-4)
    for name, value in {"loss_smoothing": 0.1, "z_loss": 0.1, "causal_rows": torch.tensor([True, False])}.items():
        assert loaded(ids, labels=labels, **{name: None}).loss.isfinite()
        with pytest.raises(UnsupportedOperationError, match=f"have no {name}"):
            loaded(ids, labels=labels, **{name: value})
    if task == "causal-lm":
        for kept in (2, torch.tensor([0, 3])):
            torch.testing.assert_close(
                loaded(ids, logits_to_keep=kept).logits, model(ids, logits_to_keep=kept).logits, rtol=1e-4, atol=1e-4
            )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["regression", "multi_label_classification", "single_label_classification"])
def test_the_loss_of_a_classifier_is_its_share_of_an_update_in_a_graph_too(kind, tmp_path):
    model = zoo.build("bert-style@tiny", "sequence-classification", vocab_size=20, num_labels=3, seed=0)
    model.config.problem_type = kind
    zoo.export(model, tmp_path / "out", "onnx", fresh_process=False)
    loaded, ids = TARGETS.get("onnx").open(tmp_path / "out"), torch.tensor([[5, 6, 7, 8], [9, 8, 7, 6]])
    labels = torch.tensor([2, 0]) if kind.startswith("single") else torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    for given in ({}, {"num_items_in_batch": torch.tensor(11)}):
        expected = model(ids, labels=labels, **given).loss
        torch.testing.assert_close(loaded(ids, labels=labels, **given).loss, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_causal_model_runs_in_onnx(exported_decoder, tmp_path):
    model, folder, report = exported_decoder
    assert report.difference.float32 < 1e-5
    assert report.difference.greedy and report.difference.beams
    loaded = TARGETS.get("onnx").open(folder)
    ids = torch.randint(3, 17, (2, 6))
    settings = dict(do_sample=False, max_new_tokens=8)
    assert torch.equal(loaded.generate(ids, **settings), model.generate(ids, **settings))
    damaged = shutil.copytree(folder, tmp_path / "damaged")
    (damaged / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(CheckpointError, match="ONNX Runtime cannot load"):
        TARGETS.get("onnx").open(damaged)


TOKENS = ["batch_size", "sequence_length"]
SOURCE = ["batch_size", "encoder_sequence_length"]
TARGET = ["batch_size", "decoder_sequence_length"]
SEEN = "past_sequence_length + sequence_length"
SEEN_TARGET = "past_decoder_sequence_length + decoder_sequence_length"
DECODER_AXES = {
    "input_ids": TOKENS,
    "attention_mask": ["batch_size", SEEN],
    "position_ids": TOKENS,
    "past_key_values.0.key": ["batch_size", "past_sequence_length"],
    "past_key_values.0.value": ["batch_size", "past_sequence_length"],
    "logits": TOKENS,
    "present.0.key": ["batch_size", SEEN],
    "present.0.value": ["batch_size", SEEN],
}
SEQ2SEQ_AXES = {
    "input_ids": TARGET,
    "encoder_attention_mask": SOURCE,
    "encoder_hidden_states": SOURCE,
    "decoder_attention_mask": ["batch_size", SEEN_TARGET],
    "past_key_values.0.encoder.key": SOURCE,
    "past_key_values.0.encoder.value": SOURCE,
    "past_key_values.0.decoder.key": ["batch_size", "past_decoder_sequence_length"],
    "past_key_values.0.decoder.value": ["batch_size", "past_decoder_sequence_length"],
    "logits": TARGET,
    "present.0.decoder.key": ["batch_size", SEEN_TARGET],
    "present.0.decoder.value": ["batch_size", SEEN_TARGET],
}
CROSS_AXES = {"present.0.encoder.key": SOURCE, "present.0.encoder.value": SOURCE}


def free_axes(path):
    """Names of the axes that are no numbers, by input and output."""
    graph = onnx.load(path).graph
    return {
        tensor.name: [size.dim_param for size in tensor.type.tensor_type.shape.dim if not size.HasField("dim_value")]
        for tensor in (*graph.input, *graph.output)
    }


@pytest.mark.slow
def test_axes_have_their_usual_names(onnx_folder, exported_decoder, encoder, tmp_path):
    """Engines look them up by name: one made of another graph's, or a number, would fix the size of the example."""
    assert free_axes(exported_decoder[1] / "model.onnx") == DECODER_AXES
    assert free_axes(onnx_folder / "decoder_model.onnx") == SEQ2SEQ_AXES
    read = {"input_ids": SOURCE, "attention_mask": SOURCE}
    assert free_axes(onnx_folder / "encoder_model.onnx") == {**read, "last_hidden_state": SOURCE, **CROSS_AXES}
    write_onnx(encoder, tmp_path)
    read = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), TOKENS)
    assert free_axes(tmp_path / "model.onnx") == {**read, "last_hidden_state": TOKENS}


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
    assert report.difference.batches == 100
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
    assert 1e-5 < report.difference.float32 < 0.2
    assert f"stored as {dtype}" in (tmp_path / "out" / "README.md").read_text()
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())


@pytest.mark.parametrize(
    ("name", "task", "settings", "says"),
    [
        ("universal", "causal-lm", {}, "computes more than its settings describe"),
        ("gemma2-style", "causal-lm", {}, "attn_logit_softcapping"),
        ("res-post-norm", "seq2seq-lm", {}, "norm_placement='res-post'"),
        ("bert-style", "masked-lm", {}, "no head for masked-lm"),
        ("pre-norm", "feature-extraction", dict(is_decoder=True), "runs no decoder for feature-extraction"),
        ("llama-style", "causal-lm", dict(sliding_window=4), "sliding_window=4"),
        ("gptj-style", "causal-lm", dict(head_dim=12), "3 dimensions of each head"),
    ],
)
def test_what_ctranslate2_lacks_is_refused(name, task, settings, says):
    plan = TARGETS.get("ctranslate2").plan(zoo_model(name, task, dtype=torch.float32, **settings))
    assert not plan.exact and says in plan.why_not


def test_a_refusal_names_what_works_and_leaves_nothing(tmp_path):
    model = zoo_model("gemma2-style", dtype=torch.float32)
    with pytest.raises(ExportError, match="ctranslate2 cannot express .*attn_logit_softcapping.*What works: .*bundle"):
        zoo.export(model, tmp_path / "out", "ctranslate2")
    assert list(tmp_path.iterdir()) == []
    assert not {plan.target: plan for plan in plan_engines(model)}["ctranslate2"].exact


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
    ):
        with pytest.raises(ZooError, match=message):
            model.generate(asked["input_ids"], **options)
    with pytest.raises(UnsupportedOperationError, match="CTranslate2Model was given as assistant_model"):
        zoo.load(translator).generate(asked["input_ids"], assistant_model=model)


def test_a_share_of_nothing_draws_the_best_token(ctranslate2_folder):
    options = {"max_new_tokens": 6, "do_sample": True, "top_p": 0.0}
    best = generate(ctranslate2_folder, TEXTS, max_new_tokens=6)
    assert generate(ctranslate2_folder, TEXTS, seed=1, **options) == best


@pytest.mark.slow
@pytest.mark.parametrize("target", ["ctranslate2", "onnx"])
def test_encoders_in_engines_ignore_no_argument(encoder, target, tmp_path):
    """Types of tokens and positions are read, or refused; such as change nothing are neither."""
    zoo.export(encoder, tmp_path / "out", target)
    loaded, ids = TARGETS.get(target).load(tmp_path / "out"), torch.tensor([[5, 6, 7, 8]])
    plain = {"token_type_ids": torch.zeros_like(ids), "position_ids": torch.arange(4)[None]}
    for given in ({}, plain, {"token_type_ids": torch.tensor([[0, 0, 1, 1]])}, {"position_ids": ids}):
        expected = encoder(ids, **given).last_hidden_state
        try:
            torch.testing.assert_close(loaded(ids, **given).last_hidden_state, expected, rtol=1e-4, atol=1e-4)
        except UnsupportedOperationError as error:
            assert next(iter(given)) in str(error) and given is not plain


def test_the_loss_of_a_decoder_is_that_of_the_labels_that_count(tmp_path):
    model = zoo_model("gpt2-style", dtype=torch.float32)
    zoo.export(model, tmp_path / "out", "ctranslate2")
    engine = TARGETS.get("ctranslate2").load(tmp_path / "out")
    ids, mask = torch.tensor([[5, 6, 7, 8, 9], [5, 4, 3, 2, 8]]), torch.ones(2, 5, dtype=torch.long)
    mask[1, 3:] = 0
    labels = ids.masked_fill(mask == 0, -100)
    labels[0, 3] = -100
    shifted = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
    shifted[0, -1] = 4  # which only the label says
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


@pytest.mark.parametrize("target", ["ctranslate2", "gguf"])
def test_unset_settings_of_generation_are_those_of_transformers(target, tmp_path):
    """The length, how many tokens are drawn from, the seed; and any of several ends ends a text."""
    pytest.importorskip(TARGETS.get(target).module)
    sizes = dict(vocab_size=90, hidden_size=32, num_hidden_layers=1, max_position_embeddings=64)
    model = zoo_model("llama-style", dtype=torch.float32, **sizes, pad_token_id=0)
    ids = torch.tensor([[5, 6, 7]])
    written = model.generate(ids, do_sample=False, eos_token_id=None)[0].tolist()
    ends = [min({*range(90)} - {*written}), written[-1]]
    model.config.eos_token_id = model.generation_config.eos_token_id = ends
    zoo.export(model, tmp_path / "out", target, fresh_process=False)
    engine = TARGETS.get(target).load(tmp_path / "out")
    for prompt in (ids, torch.full((1, 25), 7)):
        assert torch.equal(engine.generate(prompt, do_sample=False), model.generate(prompt, do_sample=False))
    likely = model(ids).logits[0, -1].topk(50).indices.tolist()

    def drawn(seed):
        torch.manual_seed(seed)
        options = dict(do_sample=True, temperature=9.0, num_return_sequences=100, max_new_tokens=1)
        return engine.generate(ids, **options)[:, -1].tolist()

    first, again, other = map(drawn, (1, 1, 2))
    assert first == again != other and {*first} <= {*likely} and len({*first}) > 25


@pytest.mark.parametrize("target", ["onnx", "ctranslate2"])
def test_a_missing_extra_says_what_to_install(target, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ctranslate2" if target == "ctranslate2" else "onnx", None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'transformer-zoo\[{target}\]'"):
        zoo.export(zoo_model("gpt2-style", dtype=torch.float32), tmp_path / "out", target)
    assert list(tmp_path.iterdir()) == []


def test_unknown_dtypes_are_refused(tmp_path):
    model = zoo_model("gpt2-style", dtype=torch.float32)
    with pytest.raises(ExportError, match="valid for ctranslate2: float32, int8"):
        zoo.export(model, tmp_path / "out", "ctranslate2", dtype="int4")
    with pytest.raises(ExportError, match="only exports to ctranslate2.* take one"):
        zoo.export(model, tmp_path / "out", "gpt2", dtype="int8")
