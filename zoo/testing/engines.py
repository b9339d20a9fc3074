"""Checks for serving engines with their own attention and cache, and of int8 weights."""

import ast
import inspect
import textwrap
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from zoo.base.errors import UnsupportedBackendError
from zoo.building.quantizing import to_int8
from zoo.fast.int8 import Int8Linear, int8_engine
from zoo.models import Attention, ZooConfig

from .backends import attend
from .cases import assert_equal, check
from .generating import NEW_TOKENS, generate
from .subjects import Subject

TOLERANCE = 0.3
"""How far outputs may be from the float model's, relative to their size: random weights make attention jump."""


@check()
def check_int8_weights_give_nearly_the_same(subject: Subject) -> None:
    """Outputs are near those of the float model, which stays as it is; most of a text is the same without a cache."""
    if subject.model.device.type != "cpu":  # int8 weights are for CPUs
        return
    before = {name: parameter.clone() for name, parameter in subject.model.named_parameters()}
    quantised = to_int8(subject.model)
    exact, rounded = subject.run(), subject.run(quantised)
    error = float((rounded - exact).norm() / exact.norm())
    replaced = any(isinstance(module, Int8Linear) for module in quantised.modules())
    limit = TOLERANCE * (2 if int8_engine().reduce_range else 1)  # inputs of seven bits, or of eight
    assert replaced and 0 < error < limit, f"int8 outputs are {error:.2g} from the float model's"
    for name, parameter in subject.model.named_parameters():
        assert torch.equal(parameter, before[name]), f"{name} of the float model has changed"
    if quantised.can_generate():
        texts = [generate(subject, quantised, use_cache=use_cache).sequences for use_cache in (True, False)]
        same = float((texts[0] == texts[1]).float().mean())
        assert same > 0.5, f"with a cache {same:.0%} of the {NEW_TOKENS} tokens are those without one"


NAME = "vllm"  # Under which vLLM registers its backend

INTERFACE = "ALL_ATTENTION_FUNCTIONS"


class Engine:
    """Attention as serving engines have it: sequences end to end, no masks, keys and values by the layer's place."""

    def __init__(self, config: ZooConfig) -> None:
        self.config = config
        self.kept: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self.lengths: list[int] = []
        self.called: list[int] = []

    def run(self, body: nn.Module, sequences: list[Tensor], seen: int = 0) -> list[Tensor]:
        """Last hidden states, (new_len, hidden_size), of sequences that continue `seen` earlier tokens each."""
        self.lengths, self.called = [len(ids) for ids in sequences], []
        ids = torch.cat(sequences)[None]
        positions = torch.cat([torch.arange(length, device=ids.device) + seen for length in self.lengths])[None]
        hidden_states = body(input_ids=ids, position_ids=positions, use_cache=False, return_dict=False)[0]
        depth = list(range(self.config.num_hidden_layers))
        assert sorted(self.called) == depth, f"an engine was called for layers {self.called}, the model has {depth}"
        return list(hidden_states[0].split(self.lengths))

    def attend(
        self, module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: float, **kwargs: Any
    ) -> tuple[Tensor, None]:
        """Mix values as an engine does, which reads no masks and no other arguments."""
        layer = module.layer_idx
        self.called.append(layer)
        pieces = zip(*(states[0].split(self.lengths, dim=1) for states in (query * scaling, key, value)), strict=True)
        mixed = [self.attend_one(module, (layer, row), *piece) for row, piece in enumerate(pieces)]
        return torch.cat(mixed, dim=1).transpose(0, 1).flatten(1), None

    def attend_one(self, module: Any, place: tuple[int, int], query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Mix the values of one sequence. *Shape:* (num_heads, new_len, head_dim)."""
        if module.is_causal and place in self.kept:
            key, value = (torch.cat(pair, dim=1) for pair in zip(self.kept[place], (key, value), strict=True))
        self.kept[place] = key, value
        window = self.config.sliding_window if self.kind(place[0]) == "sliding_attention" else None
        sides = (-1, -1) if window is None else (window - 1, 0) if module.is_causal else (window, window)
        options = {"causal": module.is_causal, "window_size": sides, "softmax_scale": 1.0}
        options["softcap"] = self.config.attn_logit_softcapping or 0.0
        query, key, value = (one.transpose(0, 1)[None] for one in (query, key, value))
        return attend(query, key, value, **options)[0].transpose(0, 1)

    def kind(self, layer: int) -> str:
        """The type of a layer, by the configuration alone."""
        types = getattr(self.config, "layer_types", None)
        sliding = self.config.sliding_window is not None
        return types[layer] if types else "sliding_attention" if sliding else "full_attention"


def registered(engine: Engine) -> AbstractContextManager[Any]:
    """Install an engine under vLLM's name for a while."""
    return mock.patch.dict(ALL_ATTENTION_FUNCTIONS._local_mapping, {NAME: engine.attend})


def interface_call(module: nn.Module) -> ast.Call | None:
    """The call of an attention backend that vLLM finds in the source of a module's forward, if it has exactly one."""
    nodes = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(type(module).forward)))))
    assigned = (node for node in nodes if isinstance(node, ast.Assign) and f"{INTERFACE}." in ast.unparse(node.value))
    names = {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)}
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    backends = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in names]
    return backends[0] if len(backends) == 1 else None


@check(stacks=("encoder", "decoder"), once_per_stack=True)
def check_engines_with_attention_of_their_own_compute_the_same(subject: Subject) -> None:
    """A serving engine's attention gives the same hidden states, for prompts and for the next token, or is refused."""
    ids = subject.inputs()["input_ids"]
    prompts = [row[: 4 + number] for number, row in enumerate(ids)]
    engine = Engine(subject.config)
    with registered(engine), torch.no_grad():
        try:
            served = subject.rebuilt(attn_implementation=NAME)
        except UnsupportedBackendError as error:
            assert "because of" in str(error), f"the refusal gives no reason: {error}"
            return
        body: Any = getattr(served, "model", served)
        places = [module.layer_idx for module in body.modules() if isinstance(module, Attention)]
        assert places == list(range(subject.config.num_hidden_layers)), f"layers have the places {places}"
        for module in body.modules():
            if isinstance(module, Attention):
                call = interface_call(module)
                scales = [] if call is None else [ast.unparse(k.value) for k in call.keywords if k.arg == "scaling"]
                assert scales == ["self.scaling"], f"{type(module).__name__}.forward calls no backend where vLLM looks"
                assert type(module.scaling) is float, f"scaling is {module.scaling!r}"
        found = engine.run(body, prompts)
        for prompt, states in zip(prompts, found, strict=True):
            expected = subject.body(input_ids=prompt[None]).last_hidden_state[0]
            assert_equal(states, expected, "hidden states in an engine = alone")
        if subject.stack == "decoder":
            length = len(prompts[0])
            engine = Engine(subject.config)
            ALL_ATTENTION_FUNCTIONS[NAME] = engine.attend
            engine.run(body, [row[:length] for row in ids])
            found = engine.run(body, [row[length : length + 1] for row in ids], seen=length)
            for row, states in zip(ids, found, strict=True):
                expected = subject.body(input_ids=row[None, : length + 1]).last_hidden_state[0, -1:]
                assert_equal(states, expected, "the next token's hidden state in an engine = alone")
