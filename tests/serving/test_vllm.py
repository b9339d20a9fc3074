"""What vLLM and SGLang ask of a model, in so far as it can be asked without them; scripts/serving runs vLLM itself."""

import inspect
import itertools
import json
import subprocess
import sys
import types
from contextlib import nullcontext
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import zoo
from zoo.base.errors import UnsupportedBackendError
from zoo.converters.bundle import auto_map
from zoo.models import NORMS, Attention, capabilities
from zoo.models.parts import ATTENTIONS
from zoo.serving.vllm import ARCHITECTURES
from zoo.testing import cases, engines, subject_of

ENGINES = "engines_with_attention_of_their_own_compute_the_same"
AUTO = ("AutoModel", "AutoModelForCausalLM")  # SGLang asks for the first of these classes in a bundle

POOLED = itertools.product(capabilities.SERVING, ("sequence", "token"))
REFUSED = [
    ("vllm", "alibi-decoder", "causal-lm", "because of positions 'alibi'"),
    ("vllm", "pre-norm:position=t5", "causal-lm", "because of positions 't5'"),
    ("vllm", "diff-transformer", "causal-lm", "because of attention 'differential'"),
    ("vllm", "pre-norm:attention=sinks", "causal-lm", "because of attention 'sinks'"),
    ("vllm", "llama-style:attention=latent", "causal-lm", "because of attention 'latent'"),
    ("vllm", "lfm2-style", "causal-lm", "because of mixer 'short-conv'"),
    ("vllm", "universal", "causal-lm", "because of share_layers=True"),
    # vLLM 0.32 returns hidden states of encoders with windows 3e-2 apart; those of decoders are the same.
    ("vllm", "bert-style:sliding_window=8", "feature-extraction", "because of sliding_window=.* in an encoder"),
    ("vllm", "modernbert-style", "feature-extraction", "because of sliding_window=.* in an encoder"),
    # Bounds on scores are trusted to no engine but those that are known to heed them; SGLang counts windows otherwise.
    ("sglang", "gemma2-style", "causal-lm", "attn_logit_softcapping"),
    ("sglang", "pre-norm:sliding_window=8", "causal-lm", "sliding_window=8, which SGLang makes"),
    # vLLM builds the head of a bundle in order to take its last projection, and pools by itself.
    *((engine, "bert-style", f"{kind}-classification", "because of their pooling") for engine, kind in POOLED),
]
ACCEPTED = [("vllm", "gemma2-style", "causal-lm", None), ("vllm", "pre-norm:sliding_window=8", "causal-lm", None)]


def test_vllm_finds_the_plugin_and_every_class_that_it_names():
    (plugin,) = entry_points(group="vllm.general_plugins", name="transformer-zoo")
    assert callable(plugin.load())
    assert all(hasattr(zoo.models, name) for name in ARCHITECTURES)


@pytest.mark.parametrize(("engine", "name", "task", "message"), [*REFUSED, *ACCEPTED])
def test_an_engine_is_refused_where_it_would_leave_something_out(engine, name, task, message):
    refusal = pytest.raises(UnsupportedBackendError, match=f"'{engine}'.*{message}") if message else nullcontext()
    variant, _, settings = name.partition(":")
    with engines.registered(engines.Engine(None)):
        ALL_ATTENTION_FUNCTIONS[engine] = ALL_ATTENTION_FUNCTIONS["vllm"]
        with refusal:
            zoo.build(f"{variant}@tiny:{settings}" if settings else f"{variant}@tiny", task, attn_implementation=engine)


@pytest.mark.parametrize("name", ["olmo2-style@tiny", "pre-norm@tiny:attention=gated"])
def test_attention_that_needs_all_heads_is_refused_where_weights_are_sliced(name, monkeypatch):
    """vLLM 0.32 takes for granted that each of two processes has half of the heads, and may not notice."""
    two = types.SimpleNamespace(
        model_parallel_is_initialized=lambda: True, get_tensor_model_parallel_world_size=lambda: 2
    )
    with engines.registered(engines.Engine(None)):
        zoo.build(name, "causal-lm", attn_implementation="vllm")
        monkeypatch.setitem(sys.modules, capabilities.SERVING["vllm"], two)
        with pytest.raises(UnsupportedBackendError, match="'vllm'.*because of tensor parallelism: .* all heads"):
            zoo.build(name, "causal-lm", attn_implementation="vllm")
        zoo.build("llama-style@tiny", attn_implementation="vllm")


@pytest.mark.parametrize("name", ["llama-style@tiny", "bert-style@tiny"])
def test_a_head_size_that_vllm_lacks_on_cpus_is_refused_there(name, monkeypatch):
    for is_cpu in (False, True):
        platform = types.SimpleNamespace(is_cpu=lambda is_cpu=is_cpu: is_cpu)
        monkeypatch.setitem(sys.modules, "vllm.platforms", types.SimpleNamespace(current_platform=platform))
        with engines.registered(engines.Engine(None)):
            zoo.build(name, "feature-extraction", attn_implementation="vllm", head_dim=64)
            refusal = pytest.raises(UnsupportedBackendError, match="'vllm'.*head_dim=24, .*valid: 32, 64,")
            with refusal if is_cpu else nullcontext():
                zoo.build(name, "feature-extraction", attn_implementation="vllm", head_dim=24)


def test_only_a_plain_norm_is_called_as_engines_know_one():
    """An engine replaces modules by the ending RMSNorm of their class, and reads `weight` and `eps` of them."""
    named = {part for part in map(NORMS.get, NORMS) if part.__name__.endswith("RMSNorm")}
    assert named == {NORMS.get("rmsnorm")}


@pytest.mark.parametrize("name", ["diff-transformer", "universal", "pre-norm:attention=sinks"])
def test_the_check_of_engines_finds_what_is_refused(name, monkeypatch):
    monkeypatch.setattr(capabilities, "what_engines_lack", lambda *args: None)
    (case,) = (case for case in cases(name) if case.check.name == ENGINES and case.task == "causal-lm")
    with pytest.raises((AssertionError, RuntimeError)):
        case()


def test_sglang_gets_what_it_hands_to_the_model_and_a_place_for_every_layer():
    """Its backend asks the class that a bundle's `auto_map` names whether it supports attention backends.

    Attention it looks up by `layer_idx` in what it has passed to the model's forward by keyword.
    """
    subject = subject_of("llama-style", "causal-lm")
    seen = {}
    names = auto_map(subject.config)
    assert all(getattr(zoo.models, names[auto].partition(".")[2])._supports_attention_backend for auto in AUTO)

    def attend(module, query, key, value, attention_mask, forward_batch=None, attention_instances=None, **kwargs):
        seen[module.layer_idx] = attention_instances[module.layer_idx], forward_batch, kwargs["scaling"]
        return query.transpose(1, 2).reshape(query.shape[2], -1), None

    with engines.registered(engines.Engine(subject.config)):
        ALL_ATTENTION_FUNCTIONS["sglang"] = attend
        model = subject.rebuilt(attn_implementation="sglang")
        model.model(
            input_ids=torch.tensor([[5, 6, 7]]),
            position_ids=torch.tensor([[0, 1, 2]]),
            forward_batch="batch",
            attention_instances={0: "first", 1: "second"},
            use_cache=False,
        )
    scale = model.model.layers[0].self_attn.scaling
    assert seen == {0: ("first", "batch", scale), 1: ("second", "batch", scale)}


def test_parts_of_attention_leave_its_forward_alone_in_which_vllm_looks():
    """All but disentangled ones: no engine computes their scores of positions."""
    names = [name for name in ATTENTIONS.names() if not name.startswith("disentangled")]
    parts = [ATTENTIONS.get(name) for name in names if ATTENTIONS.origin(name).built_in]
    assert len(parts) > 10
    for module in parts:
        assert inspect.getattr_static(module, "forward") is inspect.getattr_static(Attention, "forward")


@pytest.mark.parametrize(("script", "argument"), [("vllm_models.py", "--table"), ("bundle_models.py", "table")])
def test_the_table_is_what_was_recorded(script, argument):
    root = Path(__file__).parents[2]
    command = [sys.executable, str(root / "scripts/serving" / script), argument]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert not any(word in table for word in ("fails", "other tokens", "error"))
    assert table in (root / "docs/transformers.md").read_text(encoding="utf-8")


def test_bundles_are_compared_in_an_environment(tmp_path):
    script = str(Path(__file__).parents[2] / "scripts/serving/bundle_models.py")
    folder, record = str(tmp_path / "bundles"), tmp_path / "record.json"
    subprocess.run([sys.executable, script, "export", folder, "gpt2-style"], check=True)
    subprocess.run([sys.executable, script, "load", folder, "--record", str(record)], check=True)
    (found,) = json.loads(record.read_text(encoding="utf-8")).values()
    assert found["models"]["gpt2-style"]["largest"] < 1e-5
    assert found["models"]["gpt2-style"]["same"]
