"""Who looks into layers, or puts something there, finds batches as they were given, with their padding."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks_of_all
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from zoo.building.quantizing import to_int8
from zoo.fast.guards import own_files
from zoo.fast.modules import Identity
from zoo.fast.switches import fast_paths
from zoo.models import ZooPreTrainedModel, attention
from zoo.testing import Subject, new_subject
from zoo.testing.fast_paths import padded_inputs, rows_of_layers

SUBJECTS = [("pre-norm", "masked-lm"), ("pre-norm", "causal-lm"), ("pre-norm", "seq2seq-lm")]


class Backwards(nn.Module):
    """A user's layer that reads positions in a row and rows of a batch."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        return hidden_states.flip(1) + hidden_states[:1]


def own_forward(layer: nn.Module) -> None:
    forward = layer.mlp.forward
    layer.mlp.forward = lambda hidden_states: forward(hidden_states.flip(1))


def nothing(*args: Any) -> None:
    return None


TOUCHES: dict[str, Callable[[nn.Module], Any]] = {
    "hook": lambda layer: layer.register_forward_hook(nothing),
    "hook deep inside": lambda layer: layer.self_attn.q_proj.register_forward_hook(nothing),
    "hook with arguments": lambda layer: layer.register_forward_hook(lambda *args: None, with_kwargs=True),
    "hook before": lambda layer: layer.mlp.register_forward_pre_hook(nothing),
    "hook of gradients": lambda layer: layer.register_full_backward_hook(nothing),
    "hook before gradients": lambda layer: layer.mlp.register_full_backward_pre_hook(nothing),
    "hook on everything": lambda layer: hooks_of_all.register_module_forward_hook(nothing),
    "own forward": own_forward,
    "own module": lambda layer: setattr(layer, "mlp", Backwards()),
    "own module inside": lambda layer: setattr(layer, "mlp", nn.Sequential(Backwards(), nn.Identity())),
    "PyTorch's module": lambda layer: setattr(layer, "mlp", nn.Flatten(start_dim=2)),
    "compiled": lambda layer: layer.compile(backend="eager"),
}


def stack_of(model: ZooPreTrainedModel) -> Any:
    return getattr(model.model, "decoder", model.model)


def run(subject: Subject, model: ZooPreTrainedModel, mode: str = "always") -> tuple[Tensor, set[int]]:
    """Logits at real positions, and the batch sizes that layers saw."""
    inputs, real = padded_inputs(subject)
    with fast_paths(unpadding=mode), rows_of_layers() as rows:
        return model(**inputs).logits[real], rows


@pytest.mark.parametrize("touch", TOUCHES)
def test_hooked_or_patched_modules_keep_their_padding(touch):
    subject = new_subject("pre-norm", "causal-lm")
    model = subject.copy()
    assert run(subject, model)[1] == {1}
    handle = TOUCHES[touch](model.model.layers[1])
    try:
        assert run(subject, model)[1] == {3}
    finally:
        if handle is not None:
            handle.remove()
            assert run(subject, model)[1] == {1}


def test_the_norm_behind_the_layers_is_seen_with_padding():
    subject = new_subject("pre-norm", "causal-lm")
    model, shapes = subject.copy(), []
    model.model.norm.register_forward_hook(lambda module, args, output: shapes.append(tuple(output.shape)))
    run(subject, model)
    assert shapes == [(3, 4, subject.config.hidden_size)]


def test_a_replaced_sdpa_is_called(monkeypatch):
    def negative(*args, **kwargs):
        mixed, weights = sdpa_attention_forward(*args, **kwargs)
        return -mixed, weights

    subject = new_subject("pre-norm", "masked-lm")
    monkeypatch.setitem(AttentionInterface._global_mapping, "sdpa", negative)
    torch.testing.assert_close(run(subject, subject.model)[0], run(subject, subject.model, "never")[0])


@pytest.mark.parametrize(("name", "task"), SUBJECTS)
def test_steering_reaches_every_row(name, task):
    subject = new_subject(name, task)
    model = subject.copy()
    direction = torch.randn(subject.config.hidden_size, dtype=torch.float64)

    def steer(layer, args, output):
        output = output.clone()
        output[:, 1] += direction
        output[1, 2] -= direction
        return output

    plain, _ = run(subject, model)
    stack_of(model).layers[0].register_forward_hook(steer)
    steered, _ = run(subject, model)
    torch.testing.assert_close(steered, run(subject, model, "never")[0])
    assert not torch.allclose(steered, plain)


@pytest.mark.parametrize(("name", "task"), SUBJECTS)
def test_attribution_to_a_layer_has_the_shape_of_the_batch(name, task):
    subject = new_subject(name, task)
    attributions = []
    for mode in ("always", "never"):
        model, seen = subject.copy(), {}
        layer = stack_of(model).layers[0]
        layer.register_forward_hook(lambda module, args, output, seen=seen: seen.update(activation=output))
        layer.register_full_backward_hook(lambda module, ins, outs, seen=seen: seen.update(gradient=outs[0]))
        run(subject, model, mode)[0].logsumexp(-1).sum().backward()
        assert seen["activation"].shape == (3, 4, subject.config.hidden_size)
        attributions.append((seen["activation"] * seen["gradient"]).sum(-1))
    torch.testing.assert_close(*attributions)


@pytest.mark.parametrize(("name", "task"), SUBJECTS)
def test_a_layer_of_a_user_gets_the_batch(name, task):
    subject = new_subject(name, task)
    model = subject.copy()
    stack_of(model).layers[0].mlp = Backwards()
    torch.testing.assert_close(run(subject, model)[0], run(subject, model, "never")[0])


@pytest.mark.parametrize(("name", "task"), SUBJECTS)
def test_rows_may_have_different_adapters(name, task):
    peft = pytest.importorskip("peft")
    subject = new_subject(name, task)
    config = peft.LoraConfig(target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    model = peft.get_peft_model(subject.copy(), config, adapter_name="one")
    model.add_adapter("two", config)
    model.eval()
    inputs, real = padded_inputs(subject)
    rows = ["two", "__base__", "one"]
    with fast_paths(unpadding="always"):
        mixed = model(**inputs, adapter_names=rows).logits
        for row, name in enumerate(rows):
            if name != "__base__":
                model.set_adapter(name)
            with model.disable_adapter() if name == "__base__" else torch.no_grad():
                alone = model(**inputs).logits
            torch.testing.assert_close(mixed[row][real[row]], alone[row][real[row]])


def test_what_transformers_left_behind_is_no_hand():
    subject = new_subject("pre-norm", "masked-lm")
    model = subject.copy()
    inputs, _ = padded_inputs(subject)
    assert len(model(**inputs, output_attentions=True, output_hidden_states=True).hidden_states) == 3
    assert run(subject, model)[1] == {1}


def test_copies_and_int8_weights_do_without_padding():
    subject = new_subject("pre-norm", "masked-lm")
    for model in (copy.deepcopy(subject.model), to_int8(subject.model)):
        assert run(subject, model)[1] == {1}


def test_hooks_on_what_does_nothing_are_called():
    identity, called = Identity(), []
    identity.register_full_backward_hook(lambda *args: called.append(1))
    identity(torch.ones(2, requires_grad=True)).sum().backward()
    assert called


def test_functions_that_name_no_module_are_looked_over(monkeypatch):
    def nameless() -> None: ...

    monkeypatch.setattr(nameless, "__module__", None)
    monkeypatch.setattr(attention, "nameless", nameless, raising=False)
    assert own_files([attention.Attention]).keys() >= {"zoo.models.attention"}
