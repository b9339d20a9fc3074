"""What a plugin has to bring for `zoo export --as` and `--engine`: a target, and an engine that runs it."""

import json
import re
import sys

import pytest
import torch
from command_line import run
from native_models import scramble, zoo_model
from safetensors.torch import load_file, save_file

import zoo
from zoo.base.errors import NameCollisionError
from zoo.converters import TARGETS, EngineTarget, TargetPlan
from zoo.converters.errors import ExportError, MissingExtraError
from zoo.converters.native.declared import UnknownNativeError
from zoo.converters.verification import Difference
from zoo.converters.weights import model_with, save_generation, task_of, weights_of
from zoo.data.tokenizers import Tokenizers, train_word
from zoo.models import ZooConfig
from zoo.training.generation import ENGINES, ExportEngine

TEXTS = ["the cat sleeps", "a dog runs"]


class Plain(EngineTarget):
    """Weights in a file of another name, run by torch; language models only."""

    name = library = extra = "plain"
    summary = "for this test"
    engine, module, marks, dtypes = "Plain", "torch", ("plain.weights",), ("float32", "float16")

    def plan(self, model):
        obstacles = () if task_of(model) == "causal-lm" else ("it is no language model",)
        return TargetPlan(self.name, type(model).__name__, None, obstacles)

    def write(self, model, folder, plan, options):
        dtype = getattr(torch, options.dtype or "float32")
        save_file({name: value.to(dtype) for name, value in weights_of(model).items()}, folder / self.marks[0])
        model.config.save_pretrained(folder)
        save_generation(model, folder)

    def open(self, folder):
        weights = {name: value.float() for name, value in load_file(folder / self.marks[0]).items()}
        return model_with(ZooConfig.from_pretrained(folder), "causal-lm", weights)

    def check(self, model, folder, plan, options):
        ids = torch.arange(3, 9)[None]
        with torch.no_grad():
            ours, theirs = model(ids).logits, self.load(folder)(ids).logits
        return Difference(float((ours - theirs).abs().max()), None, float(ours.abs().max()), 1, None)


@pytest.fixture
def plain(monkeypatch):
    for registry in (TARGETS, ENGINES):
        registry.names()
        monkeypatch.setattr(registry, "_items", dict(registry._items))
    TARGETS.register(Plain.name, Plain())
    ENGINES.register("plain-runner", ExportEngine(Plain.name))


def test_a_plugin_adds_a_target_and_an_engine(plain, tmp_path):
    tokenizer = train_word(TEXTS, min_frequency=1)
    model = scramble(zoo.build("gpt2-style@tiny", vocab_size=len(tokenizer), tie_word_embeddings=False), seed=1)
    model.save_pretrained(tmp_path / "saved")
    Tokenizers(tokenizer, tokenizer).save(tmp_path / "saved")

    assert "plain" in run("export", tmp_path / "saved", "--plan").stdout
    done = run("export", tmp_path / "saved", "-o", tmp_path / "out", "--as", "plain", "--dtype", "float16", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout[done.stdout.index("{") :])
    assert 0 < report["difference"]["float32"] < 1e-2
    card = (tmp_path / "out" / "README.md").read_text()
    assert "library_name: plain" in card and "Run in Plain and compared" in card

    lines = [
        run("generate", tmp_path / place, *TEXTS, "--max-new-tokens", 5, *engine)
        for place, *engine in (("saved",), ("saved", "--engine", "plain-runner"), ("out",))
    ]
    assert all(result.exit_code == 0 for result in lines), lines[-1].output
    assert lines[0].stdout == lines[1].stdout and len(lines[2].stdout.splitlines()) == len(TEXTS)
    wrong = run("generate", tmp_path / "out", "the", "--engine", "onnx")
    assert wrong.exit_code == 2 and "valid: plain-runner" in wrong.stderr


def test_a_target_with_the_name_of_a_model_type_is_refused(plain, tmp_path):
    TARGETS.register("gpt2", Plain())
    for target in ("gpt2", None):
        with pytest.raises(NameCollisionError, match=r"target 'gpt2' of .*test_targets .* name of a model type"):
            zoo.export(zoo.build("gpt2-style@tiny", vocab_size=20), tmp_path / "out", target)
    assert not (tmp_path / "out").exists()


def test_what_a_target_does_not_take_is_refused_before_anything_is_written(plain, tmp_path, monkeypatch):
    model, plan, planned = zoo.build("bert-style@tiny", "masked-lm"), Plain.plan, []
    monkeypatch.setattr(Plain, "plan", lambda self, model: planned.append(model) or plan(self, model))
    with pytest.raises(ExportError, match="plain cannot express this model: it is no language model. What works: bert"):
        zoo.export(model, tmp_path / "out", "plain")
    assert len(planned) == 1
    with pytest.raises(UnknownNativeError, match="unknown target 'plane'.*did you mean 'plain'"):
        zoo.export(model, tmp_path / "out", "plane")
    for target, kin in (("xlm-roberta", "roberta"), ("mt5", "t5")):
        with pytest.raises(ExportError, match=f"target '{target}' was given, .* give target '{kin}'"):
            zoo.export(model, tmp_path / "out", target)
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("target", "name", "task", "settings", "message"),
    [
        ("onnx", "llama-style:attention=latent", None, {}, "caches no keys and values of every layer"),
        ("onnx", "llama-style:attention=kv-sharing", None, {}, "caches no keys and values of every layer"),
        ("onnx", "llama-style:mixer=gated-delta-net", None, {}, "mixer='gated-delta-net' keeps a state"),
        ("openvino", "llama-style:attention=latent", None, {}, "no writer yet: attention='latent' caches no keys"),
        ("ctranslate2", "llama-style:mixer=gated-delta-net", None, {}, "mixer"),
        ("ctranslate2", "universal", "causal-lm", {}, "computes more than its settings describe"),
        ("ctranslate2", "gemma2-style", "causal-lm", {}, "attn_logit_softcapping"),
        ("ctranslate2", "res-post-norm", "seq2seq-lm", {}, "norm_placement='res-post'"),
        ("ctranslate2", "bert-style", "masked-lm", {}, "no head for masked-lm"),
        ("ctranslate2", "pre-norm", "feature-extraction", {"is_decoder": True}, "no decoder for feature-extraction"),
        ("ctranslate2", "llama-style", "causal-lm", {"sliding_window": 4}, "sliding_window=4"),
        ("ctranslate2", "gptj-style", "causal-lm", {"head_dim": 12}, "3 dimensions of each head"),
        ("gguf", "bert-style", "masked-lm", {}, "the engine cannot: it has no head for masked-lm"),
        ("gguf", "t5-style", "seq2seq-lm", {}, "the engine cannot: .*it loads a T5 file, but its server calls no enco"),
        ("gguf", "llama-style", "feature-extraction", {}, "the zoo has no writer yet: files for embeddings"),
        ("transformers.js", "mixtral-style", "causal-lm", {}, "as llama: its feed-forward network is gated"),
        ("transformers.js", "pegasus-style", "feature-extraction", {}, "no encoder-decoder for feature-extraction"),
        ("transformers.js", "gpt2-style", "sequence-classification", {}, "no decoder for sequence-classification"),
        ("transformers.js", "llama-style:attention=latent", None, {}, "as llama: attention='latent'"),
    ],
)
def test_what_an_engine_lacks_is_refused_by_name(target, name, task, settings, message):
    plan = TARGETS.get(target).plan(zoo_model(name, task, dtype=torch.float32, **settings))
    assert not plan.exact and re.search(message, plan.why_not)


@pytest.mark.parametrize("target", ["plain", "gpt2", *(name for name in TARGETS if name != "bundle")])
def test_another_dtype_is_refused_with_those_of_the_target(target, plain, tmp_path):
    model = zoo.build("gpt2-style@tiny", vocab_size=20)
    dtypes = getattr(TARGETS.get(target), "dtypes", ()) if target in TARGETS else ()
    message = f"valid for {target}: {', '.join(dtypes)}" if dtypes else "only exports to ctranslate2.* take one"
    with pytest.raises(ExportError, match=message):
        zoo.export(model, tmp_path / "out", target, dtype="int3")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("target", "module", "extra"),
    [
        *(("onnx", "onnx", "onnx"), ("transformers.js", "onnx", "onnx"), ("ctranslate2", "ctranslate2", "ctranslate2")),
        *(("openvino", "openvino", "openvino"), ("openvino", "nncf", "nncf")),
        *(("gguf", "gguf", "gguf"), ("gguf", "xllamacpp", "gguf")),
    ],
)
def test_a_missing_extra_names_what_to_install(target, module, extra, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'transformer-zoo\[{extra}\]'"):
        zoo.export(zoo_model("gpt2-style"), tmp_path / "out", target, dtype="int8" if module == "nncf" else None)
    assert list(tmp_path.iterdir()) == []
