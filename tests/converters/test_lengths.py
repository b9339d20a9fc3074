"""Exports at the limits of their positions: outputs that never end, inputs that are too long, and empty ones."""

import itertools
import json

import pytest
import torch
import transformers
from native_models import scramble

import zoo
from zoo.base.errors import InputError, SequenceTooLongError, ZooError
from zoo.converters import TARGETS, verification
from zoo.converters.engine import WritingModel
from zoo.converters.errors import VerificationError
from zoo.converters.native.declared import NATIVE
from zoo.converters.target import EngineTarget
from zoo.data.tokenizers import train_word
from zoo.training.generation.engines import load_for

pytestmark = [pytest.mark.xdist_group("engines")]

POSITIONS = 16
SIZES = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48, vocab_size=20)
ENGINES = {name: target for name in TARGETS if isinstance(target := TARGETS.get(name), EngineTarget)}
VARIANTS = {"gpt2-style": "causal-lm", "marian-style": "seq2seq-lm", "vanilla": "seq2seq-lm"}
COMPUTED = (
    *("marian-style", "t5-style", "d2l-style", "universal", "t5gemma-style"),
    *("pre-norm:position=rotary", "pre-norm:position=none", "rezero:position=alibi"),
)
"""Encoder-decoders with positions that are computed, in every way."""

TRACED = ("onnx", "openvino")
BY_DAY = {("onnx", "gpt2-style"), ("onnx", "bert-style"), ("openvino", "bert-style")}
"""Engines with graphs, which take ten seconds to trace, and what is tried in them each time."""

TEXT = torch.tensor([[3, 4, 5]])


def by_day_and_night(variants):
    """Every engine with every variant; traced ones by day with few."""
    pairs = itertools.product(ENGINES, variants)
    at_night = [pytest.mark.nightly]
    return [pytest.param(*pair, marks=at_night if pair[0] in TRACED and pair not in BY_DAY else ()) for pair in pairs]


def build(name: str, task: str):
    """A model with the special ids 0, 1 and 19."""
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 19}
    ids |= {"decoder_start_token_id": 1} if task == "seq2seq-lm" else {}
    return zoo.build(name, task, **SIZES, **ids, max_position_embeddings=POSITIONS, seed=0)


def endless(variant: str):
    """A model that never writes the token that would end its output."""
    model = build(variant, VARIANTS[variant])
    model.generation_config.eos_token_id = None
    return model


@pytest.mark.parametrize(
    ("variant", "target", "load"),
    [
        ("gpt2-style", None, transformers.AutoModelForCausalLM.from_pretrained),
        ("marian-style", None, transformers.AutoModelForSeq2SeqLM.from_pretrained),
        ("gpt2-style", "bundle", zoo.load),
    ],
)
def test_exports_end_at_their_last_position(variant, target, load, tmp_path):
    zoo.export(endless(variant), tmp_path / "out", target, fresh_process=False)
    assert json.loads((tmp_path / "out" / "generation_config.json").read_text())["max_length"] == POSITIONS
    assert load(tmp_path / "out").generate(TEXT).shape == (1, POSITIONS)


@pytest.mark.parametrize(
    ("variant", "task", "target", "positions"),
    [
        ("bert-style", "sequence-classification", "bert", 1),
        ("gpt2-style", "causal-lm", "gpt2", 2),
        ("gpt2-style", "causal-lm", "ctranslate2", 2),
        ("marian-style", "seq2seq-lm", "marian", 4),
    ],
)
def test_models_with_few_positions_are_compared_as_well(variant, task, target, positions, tmp_path):
    model = zoo.build(variant, task, **SIZES, max_position_embeddings=positions, seed=0)
    report = zoo.export(model, tmp_path / "out", target, fresh_process=False)
    assert report.difference.float32 < 1e-5 and report.difference.greedy in (None, True)


WINDOW = {"sliding_window": 20, "max_position_embeddings": 48}
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 20}


@pytest.mark.parametrize("other", [{"sliding_window": 21}, {"sliding_window": 19}])
def test_a_difference_in_long_texts_alone_is_found(other, monkeypatch, tmp_path):
    """As a window that an export makes wider or narrower by one."""
    model = scramble(zoo.build("llama-style", **SIZES, **WINDOW), seed=1)
    assert zoo.export(model, tmp_path / "right", "mistral", fresh_process=False).difference.batches == 6
    mistral = type(NATIVE.get("mistral"))
    write = mistral.write_config
    monkeypatch.setattr(mistral, "write_config", lambda *given: {**write(*given), **other})
    with pytest.raises(VerificationError, match="differs by"):
        zoo.export(model, tmp_path / "out", "mistral", fresh_process=False)


def test_a_length_that_a_large_export_is_not_compared_at_is_named(monkeypatch, tmp_path):
    model = zoo.build("llama-style", **SIZES, **WINDOW)
    monkeypatch.setattr(verification, "LARGEST", 15 * model.num_parameters())
    report = zoo.export(model, tmp_path / "out", "mistral", fresh_process=False)
    assert "It was not compared beyond 20 tokens, where its window would be: it is too large for that." in report.notes


def test_phi3_changes_its_positions_where_the_model_does(tmp_path):
    """The class has a place of its own for that length, which counts more than the one of all classes."""
    rope = {**LONGROPE, "short_factor": [1.0] * 8, "long_factor": [3.0] * 8, "factor": 3.0}
    model = scramble(zoo.build("llama-style", **SIZES, max_position_embeddings=60, rope_parameters=rope), seed=1).eval()
    zoo.export(model, tmp_path / "out", "phi3", fresh_process=False)
    native = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    for length in (20, 21, 40):
        ids = torch.randint(3, 18, (1, length))
        with torch.no_grad():
            torch.testing.assert_close(native(ids).logits, model(ids).logits, atol=1e-4, rtol=1e-4)
        expected, found = (
            one.generate(ids, max_new_tokens=4, do_sample=False, eos_token_id=None) for one in (model, native)
        )
        assert torch.equal(found, expected)


@pytest.mark.parametrize("target", ["gpt2", "bundle"])
def test_tokenizers_cut_at_the_last_position(target, tmp_path):
    endless("gpt2-style").save_pretrained(tmp_path / "saved")
    tokenizer = train_word(["a b c"])
    assert tokenizer.model_max_length > POSITIONS
    tokenizer.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved" / "target")
    zoo.export(tmp_path / "saved", tmp_path / "out", target, fresh_process=False)
    for folder in ("", "target"):
        found = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", subfolder=folder)
        assert found.model_max_length == POSITIONS
        assert len(found("a " * 20, truncation=True).input_ids) == POSITIONS


def test_tokenizers_of_models_without_a_table_stay(tmp_path):
    zoo.build("llama-style", **SIZES, max_position_embeddings=POSITIONS).save_pretrained(tmp_path / "saved")
    train_word(["a b c"]).save_pretrained(tmp_path / "saved")
    zoo.export(tmp_path / "saved", tmp_path / "out", fresh_process=False)
    before, after = (
        (tmp_path / folder / "tokenizer_config.json").read_text(encoding="utf-8") for folder in ("saved", "out")
    )
    assert before == after


def test_a_length_that_was_set_is_kept(tmp_path):
    for number, setting in enumerate(({"max_length": 7}, {"max_new_tokens": 3})):
        model = endless("gpt2-style")
        model.generation_config.update(**setting)
        zoo.export(model, tmp_path / str(number), fresh_process=False)
        saved = json.loads((tmp_path / str(number) / "generation_config.json").read_text())
        assert {name: saved.get(name) for name in ("max_length", "max_new_tokens")} == {
            "max_length": None,
            "max_new_tokens": None,
            **setting,
        }


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize(("target", "variant"), by_day_and_night(["gpt2-style", "vanilla", "bert-style"]))
def test_engines_end_at_their_last_position_and_refuse_more(target, variant, encoder, tmp_path):
    model = encoder if variant == "bert-style" else endless(variant)
    if not (plan := ENGINES[target].plan(model)).exact:
        pytest.skip(plan.why_not)
    zoo.export(model, tmp_path / "out", target, fresh_process=False)
    running = ENGINES[target].open(tmp_path / "out")
    run = running.generate if model.can_generate() else running
    if model.can_generate():
        assert run(TEXT).shape == (1, POSITIONS)
        with pytest.raises(ZooError):
            run(TEXT, max_new_tokens=2 * POSITIONS)
    else:
        assert run(TEXT).last_hidden_state.shape == (*TEXT.shape, SIZES["hidden_size"])
    for ids in (torch.full((1, POSITIONS + 1), 3), torch.zeros(1, 0, dtype=torch.long)):
        with pytest.raises((ZooError, ValueError)):  # of transformers' own generate
            run(ids)


def outcome(model, source, target, *, with_logits):
    """A greedy output, and logits or the loss."""
    masks = {"attention_mask": torch.ones_like(source)}
    targets = {"decoder_input_ids": target} if with_logits else {"labels": target}
    with torch.no_grad():
        found = model(input_ids=source, **targets, **masks)
    output = model.generate(source, max_new_tokens=target.shape[1], do_sample=False, num_beams=1, **masks)
    return output, torch.as_tensor(found.logits if with_logits else found.loss)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize(("target", "name"), by_day_and_night(COMPUTED))
def test_engines_compute_beyond_the_limit_as_the_model_does(target, name, tmp_path):
    """Positions that are computed have no end: neither the model nor a graph of it refuses a text."""
    model = scramble(build(name, "seq2seq-lm"), seed=1)
    if not (plan := ENGINES[target].plan(model)).exact:
        pytest.skip(plan.why_not)
    zoo.export(model, tmp_path / "out", target, fresh_process=False)
    require_equal_beyond_the_limit(model, ENGINES[target].open(tmp_path / "out"))


@pytest.mark.slow
@pytest.mark.thorough
def test_a_graph_computes_beyond_the_limit_as_the_model_does(unlimited, openvino_folder):
    require_equal_beyond_the_limit(zoo.load(unlimited), ENGINES["openvino"].open(openvino_folder))


def require_equal_beyond_the_limit(model, running):
    limit, tokens = model.config.max_position_embeddings, min(model.config.vocab_size, model.config.decoder_vocab_size)
    for lengths in ((limit + 1, 4), (4, limit + 1), (3 * limit, 3 * limit)):
        source, targets = (torch.randint(4, tokens, (2, length)) for length in lengths)
        with_logits = not isinstance(running, WritingModel)
        expected, found = (outcome(each, source, targets, with_logits=with_logits) for each in (model, running))
        assert torch.equal(found[0], expected[0])
        torch.testing.assert_close(found[1], expected[1], atol=2e-4, rtol=2e-4)


def test_llama_cpp_refuses_what_its_context_does_not_hold(tmp_path):
    """It would end such a text without a word, although the model has no last position."""
    pytest.importorskip("xllamacpp")
    model = scramble(zoo.build("llama-style", **SIZES, max_position_embeddings=POSITIONS), seed=1)
    room = POSITIONS - TEXT.shape[1]
    expected = model.generate(TEXT, max_new_tokens=room + 1, do_sample=False, eos_token_id=None)
    model.config.eos_token_id = model.generation_config.eos_token_id = max({*range(20)} - {*expected[0].tolist()})
    zoo.export(model, tmp_path / "out", "gguf", fresh_process=False)
    running = ENGINES["gguf"].open(tmp_path / "out")
    assert torch.equal(running.generate(TEXT, max_new_tokens=room, do_sample=False), expected[:, :-1])
    with pytest.raises(InputError, match=f"up to {POSITIONS} tokens, not {POSITIONS + 1}"):
        running.generate(TEXT, max_new_tokens=room + 1, do_sample=False)
    long = torch.full((1, POSITIONS + 1), 3)
    for given in (long, long[:, 1:]):
        with pytest.raises(InputError, match=f"not {POSITIONS + 1}"):
            running.generate(given, max_new_tokens=1)
    with pytest.raises(InputError, match=f"not {POSITIONS + 1}"):
        running(long, labels=long)


@pytest.mark.parametrize("variant", ["marian-style", "gpt2-style"])
def test_ctranslate2_reads_long_texts_whole(variant, tmp_path):
    model = endless(variant) if variant == "marian-style" else zoo.build(variant, **SIZES, max_position_embeddings=2048)
    scramble(model, seed=1)
    zoo.export(model, tmp_path / "out", "ctranslate2", fresh_process=False)
    running = ENGINES["ctranslate2"].open(tmp_path / "out")
    source = torch.full((1, 1500), 3)
    source[:, :1024] = torch.randint(2, 18, (1, 1024))
    labels = source if variant == "gpt2-style" else torch.tensor([[4, 5, 6]])
    expected, found = (outcome(each, source, labels, with_logits=False) for each in (model, running))
    assert torch.equal(found[0], expected[0])
    torch.testing.assert_close(found[1], expected[1], atol=2e-4, rtol=2e-4)


@pytest.mark.slow
@pytest.mark.thorough
def test_a_graph_checks_its_tables_and_stores_its_options(tmp_path):
    """In any program, with the options that the graph stores."""
    openvino, model = pytest.importorskip("openvino"), endless("gpt2-style")
    zoo.export(model, tmp_path / "out", "openvino", fresh_process=False)
    core = openvino.Core()
    graph = core.read_model(str(tmp_path / "out" / "openvino_model.xml"))
    stored = graph.get_rt_info(["runtime_options"]).value
    plain, shown = core.compile_model(graph, "CPU"), core.compile_model(graph, "CPU", stored)
    assert plain.get_property("KV_CACHE_PRECISION").get_type_name() == "f32"
    assert shown.get_property("EXECUTION_MODE_HINT").name == "ACCURACY"

    def run_alone(ids, last):
        positions = torch.arange(last + 1 - len(ids), last + 1)[None].numpy()
        given = {"input_ids": torch.tensor([ids]).numpy(), "position_ids": positions}
        given["attention_mask"] = torch.ones(1, len(ids), dtype=torch.long).numpy()
        return shown({**given, "beam_idx": torch.zeros(1, dtype=torch.int32).numpy()})["logits"]

    ids, last = list(range(3, 3 + POSITIONS)), POSITIONS - 1
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits
    assert float((torch.from_numpy(run_alone(ids, last)) - expected).abs().max()) < 1e-5
    for wrong in 2 * [(ids, last + 1), ([*ids[1:], 20], last), ([*ids[1:], -1], last), ([3], last + 1)]:
        with pytest.raises(RuntimeError, match="ids or positions outside of 0 to"):
            run_alone(*wrong)
    loaded = load_for(tmp_path / "out")
    with pytest.raises(SequenceTooLongError, match="17 positions was given.*max_position_embeddings=16"):
        loaded(torch.tensor([[*ids, 3]]))
    with pytest.raises(InputError, match="OpenVINO refuses these inputs: ids or positions outside of 0 to"):
        loaded(torch.tensor([[20]]))
