"""Checks of training: checkpointing, low precision, learning."""

import torch
from torch import Tensor

from zoo.base.errors import UnsupportedOperationError
from zoo.models import ATTENTIONS, ZooPreTrainedModel

from .basics import LABELLED
from .cases import assert_equal, assert_finite, check
from .subjects import Subject, gradients_of

STEPS = 12


def gradients(subject: Subject, model: ZooPreTrainedModel) -> tuple[dict[str, Tensor], int]:
    calls = []
    attending = [module for name, module in model.named_modules() if name.endswith("self_attn")]
    hooks = [module.register_forward_hook(lambda *_: calls.append(1)) for module in attending]
    torch.manual_seed(3)
    subject.loss(model).backward()
    for hook in hooks:
        hook.remove()
    return gradients_of(model), len(calls)


@check(once_per_stack=True)
def check_gradient_checkpointing_gives_the_same_gradients(subject: Subject) -> None:
    """Recomputing layers in the backward pass changes no gradient, dropout included; reentrant, it may be refused."""
    plain, calls = gradients(subject, subject.copy().train())
    for reentrant in (False, True):
        model = subject.copy().train()
        try:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
        except UnsupportedOperationError:
            reads = ATTENTIONS.get(subject.config.attention).reads_earlier_layers
            assert reentrant and reads, "recomputing layers is refused without need"
            continue
        assert model.is_gradient_checkpointing, "the model denies that it computes layers again"
        recomputed, more_calls = gradients(subject, model)
        assert more_calls == 2 * calls, f"layers ran {more_calls} times, recomputing them takes {2 * calls}"
        assert plain.keys() == recomputed.keys(), f"other parameters get gradients: {plain.keys() ^ recomputed.keys()}"
        for name, gradient in plain.items():
            assert_equal(recomputed[name], gradient, f"gradient of {name} (use_reentrant={reentrant})")


@check()
def check_low_precision_is_finite(subject: Subject) -> None:
    """Under bfloat16 autocast, and in bfloat16, output and gradients are finite and near those of full precision."""
    expected = subject.run()
    model = subject.copy().float()
    with torch.autocast(subject.model.device.type, dtype=torch.bfloat16):
        output = subject.run(model)
        loss = subject.loss(model)
    loss.backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert_finite(parameter.grad, f"the gradient of {name} under autocast")
    in_bfloat16 = subject.run(subject.copy().to(torch.bfloat16))
    assert in_bfloat16.dtype == torch.bfloat16, f"a bfloat16 model gave {in_bfloat16.dtype}"
    for what, result in (("under autocast", output), ("in bfloat16", in_bfloat16)):
        assert_finite(result, f"the output {what}")
        error = (result.double() - expected).norm() / expected.norm()
        assert error < 0.2, f"the output {what} is off by {error:.0%}"


@check(tasks=LABELLED)
def check_learns_a_batch(subject: Subject) -> None:
    """A dozen steps on one batch, with dropout, lower its loss by a fifth at least."""
    model = subject.copy().float().train()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, fused=True)
    torch.manual_seed(4)
    losses = []
    for _ in range(STEPS):
        loss = subject.loss(model)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.8 * losses[0], f"the loss went from {losses[0]:.3f} to {losses[-1]:.3f} in {STEPS} steps"
