"""Exports to other engines: ONNX and CTranslate2 compute and write what the model does."""

import json
import shutil

import onnx
import pytest
import torch
from command_line import run, skip_without
from native_models import zoo_model

import zoo
from zoo.base.errors import CheckpointError, ConfigError, InputError, UnsupportedOperationError, ZooError
from zoo.converters import TARGETS
from zoo.converters.onnx.graphs import write_onnx
from zoo.training.generation import generate

from .conftest import TEXTS

# One export to each engine serves most tests.
pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("engines")]


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
        for share in ({}, {"num_items_in_batch": torch.tensor(11)}):
            given |= {"attention_mask": mask, "labels": given["decoder_input_ids"], **share}
            with torch.no_grad():
                ours, theirs = model(**given), exported(**given)
            assert float((ours.logits - theirs.logits).abs().max()) < 1e-5
            assert float(theirs.loss) == pytest.approx(float(ours.loss), abs=1e-5)
    for refused in ("output_attentions", "loss_smoothing", "z_loss"):
        with pytest.raises(UnsupportedOperationError, match=f"no {refused}"):
            exported(**given, **{refused: True})


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


def test_onnx_computes_without_a_mask(decoder, exported_decoder):
    folder, _ = exported_decoder("onnx")
    ids = torch.randint(3, decoder.config.vocab_size, (2, 7), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = decoder(input_ids=ids).logits
    torch.testing.assert_close(TARGETS.get("onnx").open(folder)(input_ids=ids).logits, expected, rtol=1e-4, atol=1e-4)


def test_graphs_refuse_packed_documents_and_embeddings(exported_decoder):
    loaded = TARGETS.get("onnx").open(exported_decoder("onnx")[0])
    ids, packed = torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([[0, 1, 2, 0, 1]])
    with pytest.raises(UnsupportedOperationError, match="which exports do not separate"):
        loaded(input_ids=ids, position_ids=packed)
    one = torch.arange(5)[None]
    torch.testing.assert_close(loaded(input_ids=ids, position_ids=one).logits, loaded(input_ids=ids).logits)
    with pytest.raises(UnsupportedOperationError, match="have no inputs_embeds"):
        loaded(input_ids=ids, inputs_embeds=torch.zeros(1, 5, 8))


@pytest.mark.parametrize("target", ["onnx", "openvino"])
def test_graphs_refuse_what_their_model_does(target, decoder, exported_decoder):
    loaded, ids = TARGETS.get(target).open(exported_decoder(target)[0]), torch.tensor([[5, 6, 7, 8, 9]])
    for wrong in (
        {"input_ids": ids - 6},
        {"input_ids": ids, "attention_mask": (ids < 7) * -1e9},
        {"input_ids": ids, "attention_mask": torch.ones(1, 7)},
        {"input_ids": ids, "labels": ids.flatten()},
        {"input_ids": ids, "labels": ids, "logits_to_keep": 2},
    ):
        for model in (decoder, loaded):
            with pytest.raises(ZooError):
                model(**wrong)
    kept = {"input_ids": ids, "labels": ids[:, :2], "logits_to_keep": 2}
    torch.testing.assert_close(loaded(**kept).loss, decoder(**kept, output_router_logits=False).loss)


@pytest.mark.parametrize("target", ["onnx", "openvino"])
def test_graphs_take_inputs_in_the_forms_of_their_model(target, decoder, exported_decoder):
    """Integers of 32 bits, positions for all rows at once, and `return_dict=False`."""
    loaded = TARGETS.get(target).open(exported_decoder(target)[0])
    ids = torch.tensor([[5, 6, 7, 8], [9, 8, 7, 6]], dtype=torch.int32)
    mask, positions = torch.ones_like(ids), torch.arange(4, dtype=torch.int32)[None]
    for given in ({}, {"attention_mask": mask}, {"attention_mask": mask, "position_ids": positions + 2}):
        expected = decoder(ids, **given, return_dict=False)[0]
        torch.testing.assert_close(loaded(ids, **given, return_dict=False)[0], expected, rtol=1e-4, atol=1e-4)
    for wrong in (positions[0], positions[:, 1:], positions.expand(3, -1)):
        for given in ({}, {"attention_mask": mask}):
            with pytest.raises(InputError, match=r"position_ids of shape \(.*valid: \(2, 4\)"):
                loaded(ids, position_ids=wrong, **given)


@pytest.mark.slow
def test_distances_of_places_take_no_positions_in_a_graph(tmp_path):
    model = zoo.build("alibi-decoder@tiny", "causal-lm", vocab_size=20, num_hidden_layers=1, seed=0)
    zoo.export(model, tmp_path / "out", "onnx", fresh_process=False)
    loaded, ids = TARGETS.get("onnx").open(tmp_path / "out"), torch.tensor([[5, 6, 7, 8]])
    left, gap = torch.tensor([[0, 1, 1, 1]]), torch.tensor([[1, 0, 1, 1]])
    for one in (model, loaded):
        assert one.generate(ids, attention_mask=left, max_new_tokens=2).shape == (1, 6)
        with pytest.raises(InputError, match="positions are distances of places"):
            one.generate(ids, attention_mask=gap, max_new_tokens=2)


@pytest.mark.slow
def test_a_graph_makes_decoder_inputs_as_its_model_does(tmp_path):
    model = zoo.build("vanilla@tiny", "feature-extraction", vocab_size=20, num_hidden_layers=1, seed=0)
    zoo.export(model, tmp_path / "out", "onnx", fresh_process=False)
    loaded, ids = TARGETS.get("onnx").open(tmp_path / "out"), torch.tensor([[5, 6, 7, 8]])
    torch.testing.assert_close(loaded(ids).last_hidden_state, model(ids).last_hidden_state, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["masked-lm", "causal-lm", pytest.param("seq2seq-lm", marks=pytest.mark.nightly)])
def test_the_loss_of_a_graph_is_that_of_its_model(task, decoder, exported_decoder, tmp_path):
    """Labels of GPT-BERT are those of the next tokens; router logits of the others are in no graph."""
    if task == "causal-lm":
        model, (folder, _) = decoder, exported_decoder("onnx")
    else:
        experts = "pre-norm@tiny:feed_forward=moe,output_router_logits=True,num_experts=2,num_experts_per_tok=1"
        name = experts if task == "seq2seq-lm" else "gpt-bert-style@tiny"
        model = zoo.build(name, task, vocab_size=20, seed=0, max_position_embeddings=16, num_hidden_layers=1)
        folder = zoo.export(model, tmp_path / "out", "onnx").folder
    loaded, ids = TARGETS.get("onnx").open(folder), torch.tensor([[5, 6, 7, 8], [9, 8, 7, 6]])
    assert not getattr(loaded.config, "output_router_logits", False)
    labels = ids.masked_fill(ids == 8, -100)
    routers = {"output_router_logits": False} if task != "masked-lm" else {}
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


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A classifier with the folder of its graph, in which labels have no part."""
    model = zoo.build("bert-style@tiny", "sequence-classification", vocab_size=20, num_labels=3, num_hidden_layers=1)
    model.config.problem_type = "regression"
    folder = tmp_path_factory.mktemp("classifier") / "out"
    zoo.export(model, folder, "onnx", fresh_process=False)
    return model, folder


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["regression", "multi_label_classification", "single_label_classification"])
def test_the_loss_of_a_classifier_is_its_share_of_an_update_in_a_graph_too(kind, classifier):
    model, folder = classifier
    loaded, ids = TARGETS.get("onnx").open(folder), torch.tensor([[5, 6, 7, 8], [9, 8, 7, 6]])
    assert loaded.config.problem_type == "regression"
    loaded.config.problem_type = model.config.problem_type = kind
    labels = torch.tensor([2, 0]) if kind.startswith("single") else torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    for given in ({}, {"num_items_in_batch": torch.tensor(11)}):
        expected = model(ids, labels=labels, **given).loss
        torch.testing.assert_close(loaded(ids, labels=labels, **given).loss, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["onnx", "openvino"])
def test_a_causal_model_runs_in_graphs(target, decoder, exported_decoder, tmp_path):
    pytest.importorskip(TARGETS.get(target).module)
    folder, report = exported_decoder(target)
    assert report.difference.float32 < 1e-5
    assert report.difference.greedy and report.difference.beams
    loaded = TARGETS.get(target).open(folder)
    ids = torch.randint(3, 17, (2, 6))
    settings = dict(do_sample=False, max_new_tokens=8)
    assert torch.equal(loaded.generate(ids, **settings), decoder.generate(ids, **settings))
    damaged = shutil.copytree(folder, tmp_path / "damaged")
    (damaged / TARGETS.get(target).marks[0]).write_bytes(b"<net")
    with pytest.raises(CheckpointError, match=f"{TARGETS.get(target).engine} cannot load"):
        TARGETS.get(target).open(damaged)


TOKENS = ["batch_size", "sequence_length"]
SOURCE = ["batch_size", "encoder_sequence_length"]
TARGET = ["batch_size", "decoder_sequence_length"]
SEEN = ["batch_size", "past_sequence_length + sequence_length"]
SEEN_TARGET = ["batch_size", "past_decoder_sequence_length + decoder_sequence_length"]


def pair(name, axes):
    return dict.fromkeys((f"{name}.key", f"{name}.value"), axes)


DECODER_AXES = {
    **{"input_ids": TOKENS, "attention_mask": SEEN, "position_ids": TOKENS, "logits": TOKENS},
    **pair("past_key_values.0", ["batch_size", "past_sequence_length"]),
    **pair("present.0", SEEN),
}
SEQ2SEQ_AXES = {
    **{"input_ids": TARGET, "decoder_attention_mask": SEEN_TARGET, "logits": TARGET},
    **dict.fromkeys(("encoder_attention_mask", "encoder_hidden_states"), SOURCE),
    **pair("past_key_values.0.encoder", SOURCE),
    **pair("past_key_values.0.decoder", ["batch_size", "past_decoder_sequence_length"]),
    **pair("present.0.decoder", SEEN_TARGET),
}
CROSS_AXES = pair("present.0.encoder", SOURCE)


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
    assert free_axes(exported_decoder("onnx")[0] / "model.onnx") == DECODER_AXES
    assert free_axes(onnx_folder / "decoder_model.onnx") == SEQ2SEQ_AXES
    read = {"input_ids": SOURCE, "attention_mask": SOURCE}
    assert free_axes(onnx_folder / "encoder_model.onnx") == {**read, "last_hidden_state": SOURCE, **CROSS_AXES}
    write_onnx(encoder, tmp_path)
    read = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), TOKENS)
    assert free_axes(tmp_path / "model.onnx") == {**read, "last_hidden_state": TOKENS}


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


@pytest.mark.parametrize("target", ["ctranslate2", "gguf"])
def test_unset_settings_of_generation_are_those_of_transformers(target, tmp_path):
    """The length, how many tokens are drawn from, the seed; and any of several ends ends a text."""
    skip_without(TARGETS.get(target).module)
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
