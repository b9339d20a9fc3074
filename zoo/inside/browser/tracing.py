"""A model as one function of tensors, which returns everything inside.

It takes whole texts and no cache: models that fit a web page are small. Its inputs also switch heads and layers off and
move positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from zoo.converters.errors import ExportError
from zoo.converters.weights import task_of
from zoo.models import Attention, ZooPreTrainedModel
from zoo.models.stack import ZooStack, stacks_of
from zoo.registry import Task

RESIDUAL = "residual"  # Ending of the names of a layer's residual connections
TOKENS = ("input_ids", "attention_mask", "position_ids")  # Inputs of a stack. *Shape:* (batch_size, seq_len) each


def kinds_of(model: ZooPreTrainedModel) -> tuple[str, ...]:
    """Kinds of attention, in the order in which the model computes them."""
    stack = model.config.stack
    return ("encoder", "decoder", "cross") if stack == "encoder-decoder" else (stack,)


def input_names(model: ZooPreTrainedModel) -> tuple[str, ...]:
    stacks = tuple(stacks_of(model))
    tokens = [f"{stack}_{name}" for stack in stacks for name in TOKENS]
    return (*tokens, *(f"{kind}_heads" for kind in kinds_of(model)), *(f"{stack}_layers" for stack in stacks))


def output_names(model: ZooPreTrainedModel) -> tuple[str, ...]:
    kinds = [f"{kind}_{what}" for kind in kinds_of(model) for what in ("attention", "norms")]
    return ("logits", *kinds, *(f"{stack}_stages" for stack in stacks_of(model)))


@dataclass
class Seen:
    """Tensors of one stack in one call, in the order in which they were computed."""

    # Attention weights by kind. *Shape:* (batch_size, num_heads, num_queries, num_keys) each
    weights: dict[str, list[Tensor]] = field(default_factory=dict)
    # Norms of what heads move, by kind. *Shape:* (batch_size, num_heads, num_keys) each
    norms: dict[str, list[Tensor]] = field(default_factory=dict)
    # The residual stream after the embeddings, every sublayer and the final norm, by the module's path.
    # *Shape:* (batch_size, seq_len, hidden_size) each
    stages: dict[str, Tensor] = field(default_factory=dict)
    layers: list[Tensor] = field(default_factory=list)  # The stream after the embeddings and after every layer


class Inspected(nn.Module):
    """A model in evaluation mode, with eager attention and everything inside among its outputs."""

    def __init__(self, model: ZooPreTrainedModel) -> None:
        super().__init__()
        self.model = model
        self.seen: dict[str, Seen] = {}

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Run the model.

        Args:
            given: As `input_names` lists them: ids, mask and positions of every stack; factors on heads, 0 or 1,
                *Shape:* (num_layers, num_heads) for every kind of attention; factors on layers, 0 for a layer that is
                left out, *Shape:* (num_layers,) for every stack.

        Returns:
            As `output_names` lists them: the logits of the embeddings and of every layer through the model's own final
            norm and head, *Shape:* (num_layers + 1, batch_size, ...); for every kind of attention the weights, *Shape:*
            (num_layers, batch_size, num_heads, num_queries, num_keys), and norms, *Shape:* (num_layers, batch_size,
            num_heads, num_keys); for every stack its stages, *Shape:* (num_stages, batch_size, seq_len, hidden_size).
        """
        inputs = dict(zip(input_names(self.model), given, strict=True))
        heads = {kind: inputs[f"{kind}_heads"] for kind in kinds_of(self.model)}
        source: dict[str, Tensor | None] = {}
        self.seen = {}
        for name, stack in stacks_of(self.model).items():
            ids, given_mask, positions = (inputs[f"{name}_{one}"] for one in TOKENS)
            mask = stack.padding_mask(given_mask, ids)  # by the variant's rule, which may be none at all
            options = {} if name == "encoder" else {"use_cache": False, **source}
            # Positions that are given to a stack would also separate packed documents.
            counted = replaced(stack.position, "count", lambda *_, positions=positions: positions)
            with counted, observed(stack, name, heads, inputs[f"{name}_layers"]) as seen:
                run = stack(input_ids=ids, attention_mask=given_mask, **options)
            seen.stages["norm"] = run.last_hidden_state
            source = {"encoder_hidden_states": run.last_hidden_state, "encoder_attention_mask": mask}
            self.seen[name] = seen
        read = [self.read_out(stack.norm(stack.stream(state)), mask) for state in seen.layers[:-1]]
        logits = torch.stack([*read, self.read_out(run.last_hidden_state, mask)])
        recorded = {kind: one for one in self.seen.values() for kind in one.weights}
        found = [
            torch.stack(tensors)
            for kind in kinds_of(self.model)
            for tensors in (recorded[kind].weights[kind], recorded[kind].norms[kind])
        ]
        return logits, *found, *(torch.stack([*one.stages.values()]) for one in self.seen.values())

    def read_out(self, hidden_states: Tensor, mask: Tensor | None) -> Tensor:
        """Logits of hidden states after the final norm, by the model's own head; `mask` is 1 for real tokens."""
        model: Any = self.model
        if task_of(model) == Task.SEQUENCE_CLASSIFICATION:
            pooled = model.model.transformer.pool(hidden_states, mask, model.config)
            return model.classifier(model.pooler(pooled))
        predicts_tokens = model.can_generate() or task_of(model) == Task.MASKED_LM
        return model.project(hidden_states) if predicts_tokens else model.classifier(hidden_states)


@contextmanager
def replaced(module: nn.Module, method: str, function: Callable[..., Any]) -> Iterator[None]:
    """Let a module have another method."""
    setattr(module, method, function)
    try:
        yield
    finally:
        delattr(module, method)


@contextmanager
def observed(stack: ZooStack, name: str, heads: dict[str, Tensor], layers: Tensor) -> Iterator[Seen]:
    """Record a stack's tensors while it runs; `heads`, (num_layers, num_heads), and `layers` are factors, 0 for off."""
    seen = Seen()
    with ExitStack() as done:
        for number, layer in enumerate(stack.layers):
            for path, module in layer.named_modules():
                if isinstance(module, Attention):
                    kind = "cross" if module.is_cross else name
                    done.enter_context(replaced(module, "attend", recorder(module, kind, heads[kind], seen)))
                elif path.rpartition("_")[2] == RESIDUAL:
                    done.callback(module.register_forward_hook(partial(keep, seen, f"layers.{number}.{path}")).remove)
            done.callback(layer.register_forward_hook(partial(choose, seen, layers), with_kwargs=True).remove)
        yield seen


def keep(seen: Seen, path: str, module: nn.Module, given: Any, returned: Tensor) -> None:
    seen.stages[path] = returned


def choose(
    seen: Seen, layers: Tensor, module: nn.Module, given: Any, named: dict[str, Any], returned: Tensor
) -> Tensor:
    """Leave out a layer of factor 0, and record the stream."""
    before, step = given[0], len(seen.layers)
    if not seen.layers:
        seen.stages = {"embeddings": before, **seen.stages}
        seen.layers.append(before)
        step = 1
    after = torch.where(layers[step - 1] > 0, returned, before)
    last = next(reversed(seen.stages))
    seen.stages[last] = after if last != "embeddings" else before
    seen.layers.append(after)
    return after


def recorder(module: Attention, kind: str, heads: Tensor, seen: Seen) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """A method that attends, records what is computed, and multiplies the heads by factors."""
    attend = module.attend
    weights, norms = seen.weights.setdefault(kind, []), seen.norms.setdefault(kind, [])

    def attend_and_record(
        query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        mixed, found = attend(query, key, value, *args, **kwargs)
        if found is None or found.shape[1] != mixed.shape[2]:
            raise ExportError(f"a page shows one map a head, and {type(module).__name__} has none or several")
        weights.append(found)
        # Norms of values after the output projection (Kobayashi et al. 2020, section 3).
        value = value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)
        by_head = module.o_proj.weight.t().reshape(value.shape[1], value.shape[3], -1)
        norms.append(torch.einsum("bhkd,hdo->bhko", value, by_head).square().sum(dim=-1).sqrt())
        return mixed * heads[len(weights) - 1][:, None], found

    return attend_and_record
