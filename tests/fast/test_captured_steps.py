"""Captured steps: when they are taken, and that nothing stale is replayed."""

import copy
import gc
import pickle
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.overrides import TorchFunctionMode

import zoo
from zoo.analysis.measuring import executed
from zoo.base.errors import ConfigError, ZooError
from zoo.fast import captured_steps
from zoo.fast.captured_steps import captured_steps_of
from zoo.fast.guards import can_be_captured
from zoo.fast.preallocated_cache import CACHE_NAME, ROOM
from zoo.fast.switches import fast_paths
from zoo.testing.subjects import randomize, token_ids

pytestmark = pytest.mark.thorough


def new_model(name: str = "gpt2-style", task: str = "causal-lm", **options):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "num_hidden_layers": 2}
    model = zoo.build(name, task=task, vocab_size=50, **{**sizes, **options}).eval()
    randomize(model)
    model.generation_config.eos_token_id = None
    return model


def write(model, mode: str = "always", tokens: int = 12, **options):
    ids = options.pop("input_ids", token_ids(2, 5, 50, 0))
    options = {"attention_mask": torch.ones_like(ids), "do_sample": False, "max_new_tokens": tokens, **options}
    with fast_paths(graph_capture=mode, prepacked_weights=mode):
        return model.generate(input_ids=ids, **options)


def captured(model) -> list[bool]:
    return [step is not None for step in captured_steps_of(model).steps.values()]


@pytest.mark.parametrize(("name", "task"), [("llama-style", "causal-lm"), ("pre-norm", "seq2seq-lm")])
@pytest.mark.parametrize("num_beams", [1, 3])
def test_texts_longer_than_the_room_are_the_same(name, task, num_beams):
    model = new_model(name, task, max_position_embeddings=3 * ROOM)
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    settings = {"tokens": 2 * ROOM, "attention_mask": mask, "num_beams": num_beams}
    assert torch.equal(write(model, **settings), write(model, "never", **settings))
    assert all(captured(model)) and 1 <= len(captured(model)) <= 2, "with and without beams that have parted"


def test_changed_weights_count():
    model = new_model()
    before = write(model)
    model.lm_head.weight.data.neg_()
    after = write(model)
    assert torch.equal(after, write(model, "never")) and not torch.equal(before, after)
    model.resize_token_embeddings(53)
    assert torch.equal(write(model), write(model, "never"))
    model.model.layers[0].mlp = copy.deepcopy(model.model.layers[1].mlp)
    assert torch.equal(write(model), write(model, "never"))
    assert captured(model) == [True]


def test_a_changed_configuration_counts():
    model = new_model()
    write(model)
    known = captured_steps_of(model)
    model.set_attn_implementation("eager")
    assert captured_steps_of(model) is not known
    assert torch.equal(write(model), write(model, "never"))
    model.config.final_logit_softcapping = 0.5
    assert captured_steps_of(model).steps == {}
    model.double()
    assert captured_steps_of(model).steps == {}
    assert torch.equal(write(model), write(model, "never"))


def test_another_generation_config_leaves_captured_steps():
    model = new_model()
    write(model)
    known = captured_steps_of(model)
    model.generation_config.eos_token_id = 7
    model.generation_config.num_beams = 2
    assert captured_steps_of(model) is known
    assert captured(model) == [True]


@pytest.mark.parametrize("change", ["nothing", "a value through data", "a value in place", "another parameter"])
def test_a_prepared_model_keeps_prepacked_weights_until_a_value_changes(change, monkeypatch):
    model = new_model("llama-style")
    with fast_paths(prepacked_weights="always"):
        assert model.prepare_for_generation(2, padded=False)
    kept = captured_steps_of(model).kept
    weight = model.model.layers[-1].mlp.down_proj.weight  # 512 values; each step compares 16 of them
    with torch.no_grad():
        if change == "a value through data":
            weight.data[0, 1] = 40.0
            assert kept[0].sources.are_current()
        elif change == "a value in place":
            weight[0, 1] = 40.0
        elif change == "another parameter":
            model.model.layers[-1].mlp.down_proj.weight = torch.nn.Parameter(weight + 1)
    packed = []
    plain = captured_steps.Prepacking.prepack
    monkeypatch.setattr(captured_steps.Prepacking, "prepack", lambda *args: packed.append(1) or plain(*args))
    assert torch.equal(write(model), write(model, "never"))
    assert len(packed) == (change != "nothing")
    if change != "another parameter":  # after which nothing is captured, nor prepared
        write(model)
        assert len(packed) == (change != "nothing"), "and keeps those of the changed weights"


def test_steps_are_captured_when_there_were_many_and_prepacked_later(monkeypatch):
    monkeypatch.setattr(captured_steps, "CAPTURE_AFTER", 10)
    prepackings = []
    monkeypatch.setattr(captured_steps, "prepacking_of", lambda capture, everywhere: prepackings.append(everywhere))
    model = new_model()
    write(model, "auto", 8)
    assert captured(model) == []
    write(model, "auto", 8)
    assert captured(model) == [True] and prepackings == []
    write(model, "auto", 8)
    assert prepackings == []
    write(model, "auto", 2 + captured_steps.PREPACK_AFTER)
    assert prepackings == [False]
    write(model, "auto", 2 + captured_steps.PREPACK_AFTER)
    assert prepackings == [False], "it is found out once"


@pytest.mark.parametrize(("name", "task"), [("llama-style", "causal-lm"), ("pre-norm", "seq2seq-lm")])
@pytest.mark.parametrize(("padded", "options"), [(True, {}), (False, {}), (None, {"num_beams": 3})], ids=str)
def test_the_first_text_of_a_prepared_model_is_replayed(name, task, padded, options):
    model = new_model(name, task, max_position_embeddings=16)
    mask = torch.tensor([[0 if padded is not False else 1, 1, 1, 1, 1], [1, 1, 1, 1, 1]])
    expected = write(model, "never", 10, attention_mask=mask, **options)
    state = torch.random.get_rng_state()
    assert model.prepare_for_generation(2, padded=padded, **options)
    assert torch.equal(state, torch.random.get_rng_state())
    known = captured_steps_of(model)
    known.counts.clear()
    assert torch.equal(write(model, "auto", 10, attention_mask=mask, **options), expected)
    # The first step of beams that have not parted is of another kind.
    assert sum(known.counts.values()) <= (1 if options else 0)


@pytest.mark.parametrize("name", ["mixtral-style", "deepseek-v3-style", "qwen3-moe-style"])
def test_experts_are_captured_without_a_word(name, capfd):
    model = new_model(name)
    expected = write(model, "never", 10)
    assert model.prepare_for_generation(2, padded=False)
    assert torch.equal(write(model, "auto", 10), expected)
    assert capfd.readouterr() == ("", "")


def test_what_cannot_be_prepared():
    model = new_model()
    with pytest.raises(ConfigError, match="at least 1 text"):
        model.prepare_for_generation(0)
    with fast_paths(graph_capture="never"):
        assert not model.prepare_for_generation()
    assert model.prepare_for_generation()
    assert not model.prepare_for_generation(3, cache_implementation="static"), "what is captured is of another kind"
    model.model.layers[0].register_forward_hook(lambda *_: None)
    assert not model.prepare_for_generation()


def test_hooks_are_called_in_every_step():
    model = new_model()
    expected, calls = write(model), []
    handle = model.model.layers[0].mlp.register_forward_hook(lambda *arguments: calls.append(1))
    assert torch.equal(write(model), expected) and len(calls) == 12
    handle.remove()
    write(model)
    assert len(calls) == 12 and can_be_captured(model)


def test_what_is_watched_is_not_replayed():
    model = new_model()
    write(model)
    plain, watched = (executed(lambda mode=mode: write(model, mode)) for mode in ("never", "always"))
    assert watched == plain and plain.flops > 0


def test_models_in_training_and_foreign_modules_are_left_alone():
    model = new_model()
    assert can_be_captured(model) and not can_be_captured(model.train())
    model.eval()
    model.model.layers[0].mlp = type("Foreign", (type(model.model.layers[0].mlp),), {"__module__": "elsewhere"})(
        model.config
    )
    assert not can_be_captured(model)
    assert torch.equal(write(model), write(model, "never"))


@pytest.mark.parametrize("mode", ["never", "always"])
def test_too_long_a_text_is_the_same_error(mode):
    model = new_model(max_position_embeddings=10)
    with pytest.raises(ZooError, match="max_position_embeddings|10 positions"):
        write(model, mode, tokens=20)


@pytest.mark.parametrize(("ids", "message"), [([3, 77], "77"), ([3, 4, 5], "must match")])
def test_a_step_that_is_wrong_is_the_forward_s_error(ids, message):
    model = new_model()
    cache = write(model, return_dict_in_generate=True).past_key_values
    with fast_paths(graph_capture="always"), torch.no_grad(), captured_steps.replayed_steps(model):
        model(input_ids=torch.tensor([[3], [4]]), **{CACHE_NAME: cache}, use_cache=True)
        seen = cache.get_seq_length()
        assert captured(model) == [True, True], "of generate's steps, and of this one, which has no positions"
        with pytest.raises((ZooError, RuntimeError), match=message):
            model(input_ids=torch.tensor(ids)[:, None], **{CACHE_NAME: cache}, use_cache=True)
    assert cache.get_seq_length() == seen, "the cache holds what was not computed"


def test_other_outputs_than_logits_are_given():
    model = new_model()
    write(model)
    output = write(model, output_hidden_states=True, output_attentions=True, return_dict_in_generate=True)
    assert len(output.hidden_states) == len(output.attentions) == 12
    assert torch.equal(output.sequences, write(model, "never"))


def test_a_cache_that_is_returned_can_be_continued():
    model = new_model()
    ids = token_ids(2, 5, 50, 0)
    first = write(model, input_ids=ids, return_dict_in_generate=True)
    again = pickle.loads(pickle.dumps(first.past_key_values))
    for cache in (first.past_key_values, again):
        text = write(model, input_ids=first.sequences, past_key_values=cache, tokens=6)
        assert torch.equal(text, write(model, "never", input_ids=ids, tokens=18))


def test_models_can_be_copied_and_are_forgotten():
    model = new_model()
    text = write(model)
    twin = copy.deepcopy(model)
    assert captured(twin) == [] and torch.equal(write(twin), text)
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None, "a captured step keeps its model alive"


def test_threads_do_not_disturb_each_other():
    model, texts = new_model(), {}
    inputs = {seed: token_ids(2, 5, 50, seed) for seed in range(4)}
    expected = {seed: write(model, "never", input_ids=ids) for seed, ids in inputs.items()}
    with fast_paths(graph_capture="always", prepacked_weights="always"):
        threads = [
            threading.Thread(target=lambda seed=seed: texts.update({seed: write(model, input_ids=inputs[seed])}))
            for seed in inputs
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(torch.equal(texts[seed], expected[seed]) for seed in inputs)


def test_threads_capture_one_at_a_time():
    """Two captures at a time mix, and nothing can be replayed from then on."""
    models = [new_model() for _ in range(5)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, models[:4]))
    write(models[4])
    assert all(all(captured(model)) for model in models[:4])
    assert captured(models[4]) == [True]


def test_compiled_functions_of_other_threads_run_meanwhile():
    """Tracers of PyTorch raise a flag for the whole process, which compiled functions take for their own tracing."""
    compiled = torch.compile(lambda states: states.sin() + 1, backend="eager")
    states, models, done = torch.randn(4), [new_model("rezero") for _ in range(3)], threading.Event()
    expected = compiled(states)

    def use() -> int:
        calls = 0
        while not done.is_set():
            assert torch.equal(compiled(states), expected)
            calls += 1
        return calls

    with ThreadPoolExecutor(1) as thread:
        calls = thread.submit(use)
        try:
            for model in models:
                write(model)
        finally:
            done.set()
    assert calls.result() > 100
    assert all(captured(model) == [True] for model in models)


def test_modes_that_change_functions_see_every_call():
    class Negated(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return -result if func is torch.nn.functional.linear else result

    model = new_model()
    plain = write(model)
    with Negated():
        assert torch.equal(write(model), write(model, "never")) and not torch.equal(write(model), plain)


def test_code_that_a_notebook_reloads_counts():
    model = new_model()
    text, forward = write(model), type(model.model.layers[0].mlp).forward
    code = forward.__code__
    forward.__code__ = (lambda self, hidden_states: -hidden_states).__code__
    try:
        assert torch.equal(write(model), write(model, "never")) and not torch.equal(write(model), text)
    finally:
        forward.__code__ = code
    assert torch.equal(write(model), text)
