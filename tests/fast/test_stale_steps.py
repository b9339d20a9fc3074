"""Whatever is changed about a model, before a generation or in the middle of it, counts from the next step on."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch
from fast.test_captured_steps import new_model
from fast.test_captured_steps import write as captured_steps_written
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LogitsProcessorList
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

import zoo
from zoo.fast import attention as attention_module
from zoo.fast.captured_steps import captured_steps_of
from zoo.models.attention import Attention
from zoo.models.embedding import TokenEmbedding
from zoo.models.layers import FeedForward
from zoo.models.residual import Scale

pytestmark = pytest.mark.thorough


write = partial(captured_steps_written, tokens=8)

Attack = Callable[[nn.Module, ExitStack], object]

ATTACKS: dict[str, Attack] = {}

SUBJECTS = {
    "gpt2-style": ("gpt2-style", "causal-lm"),
    "llama-style": ("llama-style", "causal-lm"),
    "t5-style translator": ("t5-style", "seq2seq-lm"),
    "int8 llama-style": ("llama-style", "causal-lm"),
    "mixtral-style": ("mixtral-style", "causal-lm"),
}


def attack(function: Attack) -> Attack:
    ATTACKS[function.__name__.replace("_", " ")] = function
    return function


def last(model: nn.Module, kind: type | tuple[type, ...], name: str | None = None) -> Any:
    """The last module of a kind, which is a decoder's."""
    found = [module for path, module in model.named_modules() if isinstance(module, kind) and (name or "") in path]
    return found[-1]


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@attack
def factor_of_a_slot(model, undo):
    undo.enter_context(replaced(model.get_decoder().layers[-1].mlp_residual, "scale", Scale(1.0)))
    model.get_decoder().layers[-1].mlp_residual.scale.factor = -3.0


@attack
def swapped_layers(model, undo):
    layers = model.get_decoder().layers
    undo.callback(layers.__setitem__, 0, layers[0])
    undo.callback(layers.__setitem__, 1, layers[1])
    layers[0], layers[1] = layers[1], layers[0]


@attack
def replaced_parameter(model, undo):
    norm = [module for module in model.modules() if getattr(module, "weight", None) is not None][-1]
    undo.enter_context(replaced(norm, "weight", nn.Parameter(-2 * norm.weight.detach())))


def weights(model) -> list[nn.Parameter]:
    return [parameter for name, parameter in model.named_parameters() if "decoder" in name or "layers" in name]


@attack
@torch.no_grad()
def weights_in_place(model, undo):
    for weight in weights(model):
        undo.callback(weight.data.copy_, weight.clone())
        weight.mul_(-1.5)


@attack
def weights_through_data(model, undo):
    for weight in weights(model):
        undo.callback(weight.data.copy_, weight.detach().clone())
        weight.data.mul_(-1.5)


@attack
def data_replaced(model, undo):
    for weight in weights(model):
        undo.enter_context(replaced(weight, "data", -1.5 * weight.detach()))


@attack
def global_hook(model, undo):
    def steer(module, inputs, output):
        return output.mul(-2) if isinstance(module, FeedForward) else None

    undo.callback(nn.modules.module.register_module_forward_hook(steer).remove)


def steered(self, query, key, value, *args, **kwargs):
    mixed = value.mean(2, keepdim=True).transpose(1, 2)
    groups = query.shape[0] // value.shape[0], query.shape[1] // value.shape[1]
    mixed = mixed.repeat_interleave(groups[1], dim=2).repeat_interleave(groups[0], dim=0)
    return -mixed.expand(-1, query.shape[2], -1, -1), None


@attack
def method_of_one_instance(model, undo):
    module = last(model, Attention, "self_attn")
    module.attend = lambda *args, **kwargs: steered(module, *args, **kwargs)
    undo.callback(delattr, module, "attend")


@attack
def forward_of_one_instance(model, undo):
    module = last(model, FeedForward)
    module.forward = lambda states: -states
    undo.callback(delattr, module, "forward")


@attack
def attention_registered_anew(model, undo):
    before = AttentionInterface._global_mapping[model.config._attn_implementation]
    undo.callback(AttentionInterface.register, model.config._attn_implementation, before)
    AttentionInterface.register(model.config._attn_implementation, steered)


@attack
def attention_of_this_interface(model, undo):
    name = model.config._attn_implementation
    ALL_ATTENTION_FUNCTIONS[name] = steered
    undo.callback(ALL_ATTENTION_FUNCTIONS.__delitem__, name)


@attack
def another_backend(model, undo):
    name = model.config._attn_implementation
    undo.callback(model.set_attn_implementation, name)
    model.set_attn_implementation("eager")


def set_to(name: str, value: Any, owner: Callable[[Any], Any]) -> Attack:
    return lambda model, undo: undo.enter_context(replaced(owner(model), name, value))


def patched(owner: Any, name: str, value: Any) -> Attack:
    return lambda model, undo: undo.enter_context(mock.patch.object(owner, name, value))


def hooked(module: Callable[[Any], Any], register: str, hook: Callable[..., Any]) -> Attack:
    return lambda model, undo: undo.callback(getattr(module(model), register)(hook).remove)


torch_attention = F.scaled_dot_product_attention

ATTACKS |= {
    "activation becomes another": set_to("act_fn", nn.Tanh(), lambda model: last(model, FeedForward)),
    "scaling of attention": set_to("scaling", 3.0, lambda model: last(model, Attention, "self_attn")),
    "epsilon of a norm": set_to("eps", 0.7, lambda model: [one for one in model.modules() if hasattr(one, "eps")][-1]),
    "scale of embeddings": set_to("embed_scale", -1.5, lambda model: last(model, TokenEmbedding)),
    "softcap of logits": set_to("final_logit_softcapping", 0.01, lambda model: model.config),
    "parameterless slot": set_to("scale", Scale(-3.0), lambda model: model.get_decoder().layers[-1].mlp_residual),
    "forward hook": hooked(
        lambda model: last(model, FeedForward), "register_forward_hook", lambda module, inputs, output: output.mul(-2)
    ),
    "forward pre hook": hooked(
        lambda model: last(model, Attention).o_proj,
        "register_forward_pre_hook",
        lambda module, inputs: (-2 * inputs[0],),
    ),
    "method of a class": patched(Attention, "attend", steered),
    "forward of a class of torch": patched(nn.Embedding, "forward", lambda self, ids: -self.weight[ids]),
    "function of a module": patched(attention_module, "torch_attention", steered),
    "linear of torch": patched(F, "linear", lambda states, weight, bias=None: -2 * states @ weight.T),
    "attention of torch": patched(F, "scaled_dot_product_attention", lambda *args, **kw: -torch_attention(*args, **kw)),
    "another submodule": lambda model, undo: undo.enter_context(
        replaced(model.get_decoder().layers[0], "mlp", model.get_decoder().layers[1].mlp)
    ),
    "forward of a class": lambda model, undo: undo.enter_context(
        mock.patch.object(type(last(model, FeedForward)), "forward", lambda self, states: -states)
    ),
}


def way_to_run_experts(model, undo):
    def negated(*args):
        return -of_transformers(*args)

    of_transformers = ALL_EXPERTS_FUNCTIONS["grouped_mm"]
    ALL_EXPERTS_FUNCTIONS["grouped_mm"] = negated
    undo.callback(ALL_EXPERTS_FUNCTIONS.__delitem__, "grouped_mm")


@pytest.fixture(scope="module")
def subjects():
    models: dict[str, Any] = {}

    def build(name: str) -> Any:
        if name not in models:
            variant, task = SUBJECTS[name]
            model = new_model(variant, task, **({"num_key_value_heads": 2} if variant == "llama-style" else {}))
            models[name] = zoo.to_int8(model) if name.startswith("int8") else model
        model = models[name]
        if not captured_steps_of(model).steps:
            write(model)
        assert all(captured_steps_of(model).steps.values())
        return model

    return build


REPORT = {"output_logits": True, "return_dict_in_generate": True}

HARMLESS = [*((another_backend, name) for name in SUBJECTS), (ATTACKS["linear of torch"], "int8 llama-style")]
"""Attacks that leave logits as they are, but for rounding."""


def attacked(model: Any, attack: Attack, mode: str, after: int) -> Tensor:
    """Write a text, with an attack before the given step of it."""
    steps = []

    def strike(ids, scores):
        steps.append(1)
        if len(steps) == after:
            attack(model, undo)
        return scores

    with ExitStack() as undo:
        if after == 0:
            attack(model, undo)
        processors = LogitsProcessorList([strike] if after else [])
        return write(model, mode, logits_processor=processors, **REPORT)


MOMENTS = [*((name, 5) for name in SUBJECTS if name != "mixtral-style"), ("gpt2-style", 0), ("int8 llama-style", 0)]
"""Which model is attacked, and before which step."""


@pytest.mark.parametrize(
    ("name", "after", "attack"),
    [
        # Each time every attack on one of these, in turn; at night on all of them.
        pytest.param(
            *moment, attack, id=f"{'-'.join(map(str, moment))}-{label}", marks=() if chosen else pytest.mark.nightly
        )
        for number, (label, attack) in enumerate(ATTACKS.items())
        for place, moment in enumerate(MOMENTS)
        for chosen in [place == number % len(MOMENTS)]
    ]
    + [pytest.param("mixtral-style", 5, way_to_run_experts, id="mixtral-style-5-way to run experts")],
)
def test_nothing_stale_is_replayed(subjects, name, attack, after):
    model = subjects(name)
    untouched, expected = write(model, **REPORT), attacked(model, attack, "never", after)
    found = attacked(model, attack, "always" if after else "auto", after)  # which captures nothing again
    assert torch.equal(found.sequences, expected.sequences)
    for one, other in zip(found.logits, expected.logits, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    again = write(model, "always" if after else "never", **REPORT)
    torch.testing.assert_close(again.logits, untouched.logits, rtol=1e-4, atol=1e-4, msg="the attack was not undone")
    changes_logits = expected.logits[-1].sub(untouched.logits[-1]).abs().max() > 1e-3
    assert changes_logits or (attack, name) in HARMLESS
