"""From a variant's name, or a model on the meta device, to a drawing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from zoo.building.builder import config as configure
from zoo.building.builder import skeleton
from zoo.models import Position, Transformer, ZooConfig, ZooEncoderDecoder, ZooPreTrainedModel
from zoo.models.borrowing import borrowed_by
from zoo.models.classification import ZooForSequenceClassification
from zoo.models.context import EarlierLayers
from zoo.models.fields import stated
from zoo.models.parts import RESIDUALS
from zoo.models.residual import Residual as ResidualModule
from zoo.models.stack import ZooStack, stacks_of
from zoo.registry import VARIANTS, parse_name

from .layers import IN_A_LAYER, merged, pattern
from .parts import Block, Drawing, Layer, Residual, Step, Together
from .wording import kind_of, label_and_detail, note

TRACED = (1, 2)  # The size of the batch that a layer is run on: sequences and tokens


@dataclass
class Call:
    """One call of a module."""

    module: nn.Module
    given: Tensor | None = None  # The first tensor that it was called with
    inner: list[Call] = field(default_factory=list)  # The calls that were made meanwhile


def trace(layer: nn.Module, config: ZooConfig, position: Position, earlier: EarlierLayers) -> list[Call]:
    """List the calls of a meta-device layer's own modules, and of the slots of residuals, without identities."""
    root = Call(layer)
    open_calls = [root]

    def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = (value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        open_calls.append(Call(module, next(given, None)))

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        call = open_calls.pop()
        open_calls[-1].inner.append(call)

    hidden_states = torch.zeros(*TRACED, config.hidden_size, device="meta")
    position_ids = torch.zeros(TRACED, dtype=torch.long, device="meta")
    with ExitStack() as hooks, torch.no_grad():
        for module in watched(layer):
            hooks.enter_context(module.register_forward_pre_hook(enter, with_kwargs=True))
            hooks.enter_context(module.register_forward_hook(leave))
        layer.eval()(
            RESIDUALS.get(config.residual).build_stream(config).open(hidden_states),
            None,
            None,
            torch.zeros_like(hidden_states) if config.add_cross_attention else None,
            None,
            position_embeddings=position.rotation(hidden_states, position_ids),
            step=0,
            earlier=earlier,
        )
    return root.inner


def watched(layer: nn.Module) -> list[nn.Module]:
    modules = dict.fromkeys(layer.children())
    for residual in layer.children():
        if isinstance(residual, ResidualModule):
            modules |= dict.fromkeys(residual.children())
    return [module for module in modules if not isinstance(module, nn.Identity)]


def name_in(parent: nn.Module, module: nn.Module) -> str:
    children = (*parent.named_children(), *borrowed_by(parent).items())
    return next((name for name, child in children if child is module), "")


def does_something(module: nn.Module) -> bool:
    """Whether a module changes what passes through it, at least in training."""
    return not isinstance(module, nn.Identity) and not (isinstance(module, nn.Dropout) and module.p == 0)


def signature(module: nn.Module) -> tuple[Any, ...]:
    """Sum up a module, so that two equal sums mean two equal modules."""
    plain = (bool, int, float, str, type(None))
    return tuple(
        (
            name,
            type(part).__qualname__,
            tuple((key, tuple(parameter.shape)) for key, parameter in part.named_parameters(recurse=False)),
            tuple(
                (key, value)
                for key, value in sorted(vars(part).items())
                if isinstance(value, plain) and key not in {"training", "layer_idx"} and not key.startswith("_")
            ),
        )
        for name, part in module.named_modules()
    )


RULES = {
    "attention_mask": "padding mask",
    "decoder_inputs": "decoder inputs",
    "output_size": "number of outputs",
    "backends": "attention backends",
}
"""Fields of a blueprint that are no modules, and how a drawing names them."""

BY_NO_STEP = ("embeddings", "residual", "positions", "output", "stack", "other")
"""Places with settings that are steps of their own, or listed below the drawing."""

ROLES = {"norm_out": "after", **dict.fromkeys(("norm_in", "norm_branch", "scale", "dropout"), "branch")}
"""Places of the slots of a residual connection; others are on the skip connection."""

Marks = Mapping[str, tuple[str, ...]]


class Reader:
    """Reads a drawing off a model on the meta device."""

    def __init__(self, model: ZooPreTrainedModel, marks: Marks | None = None) -> None:
        self.model = model
        self.marks = marks or {}
        self.body: Any = getattr(model, model.base_model_prefix, model)
        self._owners: dict[int, str] = {}
        self._signatures: dict[str, Any] = {}

    def signatures(self) -> dict[str, Any]:
        """Properties of every step, for comparisons with another model's."""
        self.draw("", "")
        return self._signatures

    def draw(self, name: str, task: str) -> Drawing:
        paths = {part: f"{path}." if path else "" for path, part in self.model.named_modules()}
        blocks = tuple(self.block(stack, kind, paths[stack]) for kind, stack in stacks_of(self.model).items())
        return Drawing(name, task, blocks, tuple(self.head()), tuple(self.rules()))

    def block(self, stack: ZooStack, name: str, prefix: str) -> Block:
        config = stack.config
        self._signatures[f"{prefix}layers"] = config.share_layers
        remarks: list[str] = []
        if len(stack.layers) == 1 < config.num_hidden_layers:
            remarks.append("one layer, applied again and again")
        kinds = [kind.removesuffix("_attention") for kind in config.types_of_layers()]
        if config.nope_layers is not None:
            named = zip(kinds, config.nope_layers, strict=False)
            kinds = [f"{kind} without positions" if nope else kind for kind, nope in named]
        if order := pattern(kinds):
            remarks.append(f"by layer: {order}")
        before = ("embed_tokens", "token_types", "position", "embedding_norm", "dropout", "embedding_projection")
        return Block(
            name=name,
            before=tuple(self.modules(stack, before, prefix, config)),
            layers=self.layers(stack, prefix, remarks),
            after=tuple(self.modules(stack, ("stream", "norm"), prefix, config)),
            remark="; ".join(remarks),
            quirks=self.marks.get(f"{prefix}layers", ()),
        )

    def layers(self, stack: ZooStack, prefix: str, remarks: list[str]) -> tuple[Layer, ...]:
        kinds: dict[Any, list[int]] = {}
        for number, layer in enumerate(stack.layers):
            kinds.setdefault(signature(layer), []).append(number)
        firsts = {first for first, *_ in kinds.values()}
        drawn, earlier = {}, EarlierLayers(token_ids=torch.zeros(TRACED, dtype=torch.long, device="meta"))
        # All up to the last kind, for the first of a kind may read what another one kept.
        for number, layer in enumerate(stack.layers[: max(firsts) + 1]):
            try:
                calls = trace(layer, stack.config, stack.position, earlier)
            except Exception as error:  # a plugin's layer may need what is not known here
                calls = [Call(child) for child in layer.children()]
                if number in firsts:
                    remarks.append(f"in the order of definition, for the layer could not be run: {error}")
            if number in firsts:
                drawn[number] = tuple(self.items(calls, layer, f"{prefix}layers.{number}", stack.config))
        total = stack.config.num_hidden_layers
        if len(stack.layers) == 1:
            return (Layer(drawn[0], total),)
        return merged(drawn, {alike[0]: alike for alike in kinds.values()}, total)

    def modules(self, parent: nn.Module, names: Iterable[str], prefix: str, config: ZooConfig) -> Iterator[Step]:
        for name in names:
            module = getattr(parent, name, None)
            if module is not None and does_something(module):
                yield self.step(module, f"{prefix}{name}", "stream", config)

    def items(self, calls: list[Call], layer: nn.Module, path: str, config: ZooConfig) -> Iterator[Step | Residual]:
        for call in calls:
            if isinstance(call.module, ResidualModule):
                yield self.residual(call, layer, f"{path}.{name_in(layer, call.module)}", config)
            elif call.inner:
                yield from self.items(call.inner, layer, path, config)
            elif does_something(call.module):
                yield self.step(call.module, f"{path}.{name_in(layer, call.module)}", "stream", config)

    def residual(self, call: Call, layer: nn.Module, path: str, config: ZooConfig) -> Residual:
        slots: dict[str, tuple[Step, ...]] = {}
        sublayers: list[tuple[Step, Any]] = []
        for inner in call.inner:
            slot = name_in(call.module, inner.module)
            if slot and does_something(inner.module):
                role = ROLES.get(slot, "skip")
                slots[slot] = (self.step(inner.module, f"{path}.{slot}", role, config),)
            elif not slot:
                place = f"{path.rpartition('.')[0]}.{name_in(layer, inner.module)}"
                sublayers.append((self.step(inner.module, place, "branch", config), inner.given))
        inside: tuple[Step | Together, ...] = tuple(step for step, _ in sublayers)
        if len(sublayers) > 1 and all(given is sublayers[0][1] for _, given in sublayers):
            inside = (Together(tuple(step for step, _ in sublayers)),)
        before = slots.get("norm_in", ())
        after = (*slots.get("norm_branch", ()), *slots.get("scale", ()), *slots.get("dropout", ()))
        skip = [step for slot, steps in slots.items() if slot not in ROLES for step in steps]
        return Residual(tuple(skip), (*before, *inside, *after), slots.get("norm_out", ()))

    def head(self) -> Iterator[Step]:
        config = self.model.config
        if isinstance(self.model, ZooForSequenceClassification):
            pooler = self.body.transformer.pooler
            self._signatures["pooling"] = getattr(pooler, "__qualname__", config.classifier_pooling)
            quirks = self.marks.get("pooling", ())
            yield Step(f"{config.classifier_pooling} pooling", "", "pooling", note(pooler), quirks)
        modules = {} if self.body is self.model else dict(self.model.named_children())
        # As they run: what makes the projection's input, dropout, the projection.
        ranks = {name: isinstance(it, nn.Dropout) + 2 * isinstance(it, nn.Linear) for name, it in modules.items()}
        for name in sorted(modules, key=ranks.__getitem__):
            if modules[name] is not self.body and does_something(modules[name]):
                yield self.step(modules[name], name, "stream", config)
        if hasattr(self.model, "lm_head") and config.logit_scale != 1.0:
            yield Step(f"× {config.logit_scale:g}", "", "logit_scale", kind="scale")
        if hasattr(self.model, "lm_head") and config.final_logit_softcapping is not None:
            yield Step(f"soft cap at {config.final_logit_softcapping:g}", "", "final_logit_softcapping", kind="scale")

    def rules(self) -> Iterator[Step]:
        """List what the variant does that is no module."""
        for place in BY_NO_STEP:
            for phrase in stated(self.model.config, place, drawing=True):
                self._signatures[phrase] = True
                yield Step("setting", phrase, place, kind="rule")
        is_both, predicts = isinstance(self.body, ZooEncoderDecoder), hasattr(self.model, "lm_head")
        last = self.body.decoder if is_both else self.body
        has_part = {"decoder_inputs": is_both, "output_size": predicts}
        for name, label in RULES.items():
            rule = getattr(last.transformer, name)
            self._signatures[name] = getattr(rule, "__qualname__", rule)
            if rule != getattr(Transformer, name) and has_part.get(name, True):
                detail = rule.__name__ if callable(rule) else ", ".join(rule)
                words = note(rule) if callable(rule) else ""
                yield Step(label, detail, name, words, self.marks.get(name, ()), "rule")

    def step(self, module: nn.Module, path: str, role: str, config: ZooConfig) -> Step:
        label, detail = label_and_detail(module, config)
        lender, shared = self.lender(module, path)
        if shared:
            detail = ", ".join(filter(None, (detail, f"weights of {shared}")))
        self._signatures[path] = (role, shared, signature(module))
        kind = kind_of(module)
        if kind == "other" and "norm" in path.rpartition(".")[2]:  # a plugin's
            kind = "norm"
        return Step(label, detail, path, note(module), self.marks.get(path, ()), kind, lender)

    def lender(self, module: nn.Module, path: str) -> tuple[str, str]:
        """Find the module, among those drawn before, that shares its weights."""
        borrowed = nn.ModuleDict(borrowed_by(module))
        for name, parameter in (*module.named_parameters(), *borrowed.named_parameters()):
            owner = self._owners.setdefault(id(parameter), f"{path}.{name}")
            if owner != f"{path}.{name}":
                lender = owner.removesuffix(f".{name}")
                layer = IN_A_LAYER.match(path)
                return lender, lender.removeprefix(layer[0]) if layer else lender
        return "", ""


def draw(name: str, task: str | None = None, **overrides: Any) -> Drawing:
    """Draw a variant.

    Args:
        name: Its name, possibly with settings: "vanilla", "vanilla+faithful", "pre-norm:position=rotary".
        task: Task of the model, by default the variant's first task.
        overrides: Fields of the configuration that differ from the variant's defaults.

    Returns:
        The drawing. Where quirks are switched on, its steps name those that change them.

    Raises:
        ZooError: When a name, task, quirk or field is unknown, or values contradict each other.
    """
    spec = parse_name(name)
    variant = VARIANTS.get(spec.name)
    quirks = variant.check_quirks(spec.quirks, faithful=spec.faithful)
    plain = str(dataclasses.replace(spec, quirks=(), faithful=False))
    marks: dict[str, tuple[str, ...]] = {}
    if quirks:
        # One layer shows as much as all, unless they differ.
        differ = hasattr(configure(plain, task, **overrides), "layer_types")
        shallow = overrides if differ else {**overrides, "num_hidden_layers": 1, "decoder_layers": 1}
        usual = Reader(skeleton(plain, task, **shallow)).signatures()
        for quirk in quirks:
            alone = Reader(skeleton(plain, task, quirks=(quirk,), **shallow)).signatures()
            for path, signature in alone.items():
                if usual.get(path) != signature:
                    marks[path] = (*marks.get(path, ()), quirk)
    reader = Reader(skeleton(name, task, **overrides), marks)
    return reader.draw(str(spec), variant.check_task(task))
