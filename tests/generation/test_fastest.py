"""The fastest engine: measured, equal to PyTorch, and never one that computes something else."""

import time

import pytest
import torch
from click.testing import CliRunner
from command_line import skip_without

import zoo
from zoo.base.errors import InputError, InvalidChoiceError, UnsupportedOperationError
from zoo.cli.main import cli
from zoo.converters.verification import ROUNDING
from zoo.data.tasks import TASKS, train_tokenizers
from zoo.training import save_checkpoint
from zoo.training.generation import ENGINES, Engine, accelerate, fastest, try_engines

TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


class Clock:
    """A clock that only models move on, so that no busy machine decides a test."""

    now = 0.0

    def perf_counter(self):
        return self.now

    def slow(self, model, seconds):
        """Let a call of a model take this many seconds."""
        forward = model.forward

        def timed(*args, **kwargs):
            self.now += seconds
            return forward(*args, **kwargs)

        model.forward = timed
        return model


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(fastest, "time", clock)
    return clock


class Pretended(Engine):
    """PyTorch taking this many seconds, with weights that may be a little off."""

    def __init__(self, clock, seconds=0.1, off=0.0, exact=True):
        self.clock, self.seconds, self.off, self.exact = clock, seconds, off, exact

    def run(self, model, source):
        other = type(model)(model.config)
        other.load_state_dict(model.state_dict())
        with torch.no_grad():
            for parameter in other.parameters():
                parameter += self.off
        return self.clock.slow(other, self.seconds)


class Refusing(Engine):
    def run(self, model, source):
        raise UnsupportedOperationError("not this one")


@pytest.fixture
def engines(monkeypatch):
    ENGINES.names()
    monkeypatch.setattr(ENGINES, "_items", dict(ENGINES._items))
    return ENGINES


def encoder():
    return zoo.build("bert-style", "feature-extraction", seed=0, vocab_size=50, **TINY).eval()


def test_the_quickest_of_those_that_compute_the_same_is_taken(engines, clock):
    engines.register("quick", Pretended(clock, 0.4))
    engines.register("quicker", Pretended(clock, 0.2))
    engines.register("slow", Pretended(clock, 9))
    model, messages = clock.slow(encoder(), 1), []
    fast = accelerate(model, engines=["quick", "quicker", "slow", "quick"], tell=messages.append)
    assert messages == [
        *("torch: 1000.0 ms, 0 from PyTorch", "quick: 400.0 ms, 0 from PyTorch", "quicker: 200.0 ms, 0 from PyTorch"),
        *("slow: 9000.0 ms, 0 from PyTorch", "quicker is taken, 5.00 times as fast as torch"),
    ]
    ids = torch.arange(5, 25).view(2, 10)
    assert fast is not model and torch.equal(fast(ids).last_hidden_state, model(ids).last_hidden_state)


def test_one_that_computes_something_else_or_nothing_never_is(engines, clock):
    engines.register("off", Pretended(clock, off=1e-3))
    engines.register("refusing", Refusing())
    engines.register("rounding", Pretended(clock, exact=False))
    model = clock.slow(encoder(), 1)
    assert accelerate(model, engines=["off", "refusing", "rounding"]) is model
    assert accelerate(model, engines=["off", "refusing"], exact=False) is model
    assert accelerate(model, engines=["off", "refusing", "rounding"], exact=False) is not model


def test_one_that_is_hardly_faster_is_not_worth_it(engines, clock):
    engines.register("hardly", Pretended(clock, 0.95))
    model = clock.slow(encoder(), 1)
    assert accelerate(model, engines=["hardly"]) is model


def test_padding_does_not_count(engines, clock):
    """Outputs at padding may be anything, in another engine as well."""

    class Filling(Pretended):
        def run(self, model, source):
            other = super().run(model, source)
            forward = other.forward

            def filled(input_ids, attention_mask):
                output = forward(input_ids, attention_mask=attention_mask)
                output.last_hidden_state = output.last_hidden_state.masked_fill(attention_mask[..., None] == 0, 7.0)
                return output

            other.forward = filled
            return other

    engines.register("filling", Filling(clock))
    inputs = {"input_ids": torch.ones(2, 4, dtype=torch.long), "attention_mask": torch.tensor([[1] * 4, [1, 1, 0, 0]])}
    assert try_engines(encoder(), inputs, engines=["filling"])[1].difference <= ROUNDING


@pytest.mark.slow
@pytest.mark.xdist_group("engines")
@pytest.mark.parametrize(
    ("variant", "task"),
    [
        ("bert-style", "feature-extraction"),
        pytest.param("pre-norm", "sequence-classification", marks=pytest.mark.nightly),
        ("llama-style", "causal-lm"),
        pytest.param("vanilla", "seq2seq-lm", marks=pytest.mark.nightly),
    ],
)
def test_real_engines_compute_the_same(variant, task):
    pytest.importorskip("onnxruntime")
    model = zoo.build(variant, task, seed=0, vocab_size=50, **TINY).eval()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    usual, *others = try_engines(model, engines=["onnx", "ctranslate2"])
    assert usual.engine == "torch" and usual.model is model and usual.difference == 0
    onnx = others[0]
    assert onnx.model is not None and onnx.difference <= ROUNDING and 0 < onnx.seconds < float("inf")
    assert all(trial.problem or trial.difference <= ROUNDING for trial in others)
    try_engines(model, engines=["torch-int8"], exact=False)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())


def test_what_cannot_be_accelerated_is_refused(engines):
    with pytest.raises(InvalidChoiceError, match=r"'onxx'.*onnx"):
        accelerate(encoder(), engines=["onxx"])
    with pytest.raises(InvalidChoiceError, match="fastest"):
        accelerate(encoder(), engines=["fastest"])
    with pytest.raises(InputError, match=r"meta.*model.cpu\(\)"):
        accelerate(encoder().to("meta"))
    with pytest.raises(InputError, match=r"Linear.*zoo\.convert"):
        accelerate(torch.nn.Linear(2, 2))


def test_no_engine_is_tried_after_the_limit(engines, clock):
    for name in ("first", "second", "third"):
        engines.register(name, Pretended(clock, 6))
    usual, first, second, third = try_engines(clock.slow(encoder(), 1), engines=["first", "second", "third"], limit=20)
    assert usual.model is not None and first.model is not None and second.model is not None
    assert third.model is None and "not tried, since the others took more than 20 s" in str(third)


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """The user's cache, of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    return tmp_path / "cache" / "transformer-zoo" / "engines"


def test_a_choice_is_kept_for_one_model_batch_and_machine(engines, clock, cache, monkeypatch):
    engines.register("quick", Pretended(clock, 0.1))
    inputs = {"input_ids": torch.ones(2, 4, dtype=torch.long)}

    def sentences(model, inputs=inputs):
        messages = []
        accelerate(model, inputs, engines=["quick"], kept=True, tell=messages.append)
        return len(messages)

    def model():
        return clock.slow(encoder(), 1)

    measured, read = 3, 1
    assert [sentences(model()) for _ in range(2)] == [measured, read]
    other = model()
    with torch.no_grad():
        next(other.parameters()).flatten()[0] += 1
    assert sentences(other) == measured
    assert sentences(model(), {"input_ids": torch.ones(2, 5, dtype=torch.long)}) == measured
    monkeypatch.setattr(fastest, "device_name", lambda device: "another processor")
    assert sentences(model()) == measured


def test_a_damaged_choice_is_made_again_and_few_stay(engines, clock, cache, monkeypatch):
    engines.register("quick", Pretended(clock, 0.1))
    monkeypatch.setattr(fastest, "KEPT", 2)

    def choose(length):
        messages = []
        inputs = {"input_ids": torch.ones(1, length, dtype=torch.long)}
        accelerate(clock.slow(encoder(), 1), inputs, engines=["quick"], kept=True, tell=messages.append)
        return messages[-1]

    assert choose(3) == "quick is taken, 10.00 times as fast as torch"
    (place,) = cache.iterdir()
    shown = f"quick is taken, 10.00 times as fast as torch when it was measured; remove {place} to measure again"
    assert choose(3) == shown
    for text in ("{", "[]", '{"engine": "gone", "speed": 2}'):
        (place / "choice.json").write_text(text)
        assert choose(3) == "quick is taken, 10.00 times as fast as torch"
    for length in (4, 5, 6):
        choose(length)
    assert len(list(cache.glob("*/choice.json"))) == 2


@pytest.mark.slow
@pytest.mark.xdist_group("engines")
def test_a_kept_export_computes_the_same(cache):
    skip_without("ctranslate2")
    model = zoo.build("vanilla", "seq2seq-lm", seed=0, vocab_size=50, **TINY).eval()
    generate = model.generate

    def slow(*args, **kwargs):
        time.sleep(0.3)
        return generate(*args, **kwargs)

    model.generate = slow
    messages = []
    first, second = (accelerate(model, engines=["ctranslate2"], kept=True, tell=messages.append) for _ in range(2))
    assert "when it was measured" in messages[-1] and type(first) is type(second) is not type(model)
    ids = torch.arange(5, 25).view(2, 10)
    assert torch.equal(first.generate(ids, max_new_tokens=5), second.generate(ids, max_new_tokens=5))


@pytest.mark.slow
def test_the_command_line_takes_the_fastest_and_shows_the_time_of_each(engines, tmp_path, cache):
    skip_without("ctranslate2")
    for name in ("onnx", "openvino", "llama.cpp"):  # exports that take seconds
        del engines._items[name]
    task = TASKS.get("translation")
    examples = task.load().heldout
    tokenizers = train_tokenizers(task.sources(examples), task.references(examples), kind="word", joint=False)
    model = zoo.build("pre-norm", "seq2seq-lm", seed=1, **TINY, **task.model_settings(tokenizers))
    save_checkpoint(model, tokenizers, tmp_path / "saved")
    arguments = ["generate", str(tmp_path / "saved"), "The dog is here.", "--max_new_tokens", "6"]
    plain, chosen, rounded = (
        CliRunner().invoke(cli, [*arguments, *more])
        for more in ([], ["--engine", "fastest"], ["--engine", "ctranslate2-int8"])
    )
    assert plain.exit_code == chosen.exit_code == rounded.exit_code == 0, chosen.output
    assert chosen.stdout == plain.stdout and rounded.stdout
    assert "torch: " in chosen.stderr and "ctranslate2: " in chosen.stderr and " is taken, " in chosen.stderr
