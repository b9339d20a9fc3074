"""Weight decay by role: for every variant, every part, and parts of plugins; and the groups that optimisers get."""

from collections.abc import Iterator
from typing import Any, ClassVar

import click
import pytest
import torch
from torch import nn

import zoo
from zoo.base.errors import ZooError
from zoo.cli.main import cli
from zoo.models.parts import NORMS, PART_FIELDS
from zoo.models.roles import DECAY, Role, decayed_names, parameter_roles
from zoo.registry import list_variants
from zoo.training.arguments import DECAYS, training_arguments
from zoo.training.trainer import ZooTrainer

SIZES: dict[str, Any] = {
    **{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128},
    "vocab_size": 50,
}

MAPS = {
    *("Linear", "CausalConvolution", "Experts", "ClampedExperts", "LatentExpansion", "UnitHead"),
    *("BiasedRouter", "SoftmaxRouter", "SigmoidRouter", "ConnectionWeights", "ManifoldWeights", "OfAllStreams"),
}
"""Classes that hold linear maps. A class that holds anything of two dimensions belongs here or to `OTHERS`."""

EMBEDDINGS = ("TokenEmbedding", "UnitEmbedding", "ValueEmbedding", "TokenTypeEmbedding", "FrozenEmbedding", "Embedding")
POSITIONS = ("LearnedPosition", "LearnedUnpaddedPosition", "RelativeBucketPosition", "DisentangledPosition")
TABLES = dict.fromkeys((*POSITIONS, "StepEmbedding"), Role.TABLE)
OTHERS = {**dict.fromkeys(EMBEDDINGS, Role.EMBEDDING), **TABLES, "StreamNorm": Role.GAIN}


def subjects() -> Iterator[str]:
    """Every variant, and every part in a plain decoder."""
    yield from list_variants()
    for field in sorted(PART_FIELDS.keys() - {"initializer"}):
        for name in PART_FIELDS[field].names():
            heads = ",num_key_value_heads=2,attention_dropout=0" if name == "differential" else ""
            yield f"gpt2-style:{field}={name}{heads}"


@pytest.mark.parametrize("name", list(subjects()))
def test_matrices_decay_and_nothing_else(name: str) -> None:
    """Against a list of classes, so that a new class with a table is decided on."""
    try:
        model = zoo.building.builder.skeleton(name, **SIZES)
    except ZooError:
        pytest.skip("the part needs others")
    roles = parameter_roles(model)
    tied = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    for path, module in model.named_modules():
        for own, parameter in module.named_parameters(recurse=False):
            role = roles.get(f"{path}.{own}" if path else own)
            if role is None:  # the second name of a shared parameter
                continue
            if parameter.ndim < 2 or own.endswith("bias") or own == "mix":
                assert role in (Role.GAIN, Role.BIAS, Role.SCALAR), (path, own)
            elif type(module).__name__ in MAPS:
                assert role == (Role.EMBEDDING if id(parameter) in tied else Role.MATRIX), (path, own)
            else:
                assert role == OTHERS[type(module).__name__], (path, own)
    matrices = {path for path, role in roles.items() if role == Role.MATRIX}
    assert set(decayed_names(model, "matrices")) == matrices and set(decayed_names(model, "all")) == roles.keys()
    two_dimensional = set(decayed_names(model, "matrices-and-embeddings"))
    assert two_dimensional == {one for one, role in roles.items() if role in (Role.MATRIX, Role.EMBEDDING, Role.TABLE)}


class HeadwiseNorm(nn.Module):
    """A plugin's norm, with a gain for every pair of head and channel and a name that does not end in Norm."""

    def __init__(self, width: int, config: Any) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(4, width // 4))
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states * self.gain.flatten() / self.temperature


class Gate(nn.Module):
    """A plugin's module that declares the role of its parameter."""

    parameter_roles: ClassVar[dict[str, str]] = {"weight": "scalar"}

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 3))


def test_a_plugins_norm_does_not_decay_and_a_declared_role_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    NORMS.names()
    monkeypatch.setattr(NORMS, "_items", dict(NORMS._items))
    NORMS.register("headwise-test", HeadwiseNorm)
    model = zoo.build("gpt2-style", norm="headwise-test", **SIZES)
    model.gate = Gate()
    roles = parameter_roles(model)
    assert {role for path, role in roles.items() if path.endswith(".gain")} == {Role.GAIN}
    assert {role for path, role in roles.items() if path.endswith(".temperature")} == {Role.SCALAR}
    assert roles["gate.weight"] == Role.SCALAR


def decayed_by(optimizer: torch.optim.Optimizer, model: nn.Module) -> set[str]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = [group for group in optimizer.param_groups if group["weight_decay"]]
    return {names[id(parameter)] for group in groups for parameter in group["params"]}


@pytest.mark.parametrize(
    "variant", ["gpt2-style", "gpt2-style:norm=rmsnorm", "gpt2-style:norm=dyt", "hyper-connections"]
)
@pytest.mark.parametrize("kind", ["adamw", "muon", "mup"])
@pytest.mark.parametrize("decay", DECAY)
def test_every_optimizer_has_groups_by_role(variant: str, kind: str, decay: str, tmp_path: Any) -> None:
    settings = {"parametrization": "mup"} if kind == "mup" else {}
    model = zoo.build(variant, "causal-lm", **SIZES, **settings)
    given = {"weight_decay": 0.1, "decay": decay, "use_cpu": True, **({"optim": "muon"} if kind == "muon" else {})}
    trainer = ZooTrainer(model=model, args=training_arguments(given, output_dir=tmp_path, seed=0, progress=False))
    roles = parameter_roles(model)
    expected = {path for path, role in roles.items() if role in DECAY[decay]}
    assert decayed_by(trainer.create_optimizer(), model) == expected


def test_the_rule_of_transformers_is_there_for_records(tmp_path: Any) -> None:
    model = zoo.build("gpt2-style:norm=rmsnorm", "causal-lm", **SIZES)
    args = training_arguments(
        {"weight_decay": 0.1, "decay": "transformers", "use_cpu": True}, output_dir=tmp_path, seed=0, progress=False
    )
    decayed = decayed_by(ZooTrainer(model=model, args=args).create_optimizer(), model)
    gains = {name for name, role in parameter_roles(model).items() if role == Role.GAIN}
    assert gains - decayed == {"model.norm.weight"}  # one of five, known by its name
    assert {name for name, _ in model.named_parameters() if not name.endswith("bias")} - gains <= decayed


@pytest.mark.parametrize("verb", ["train", "compare"])
def test_both_commands_offer_every_rule(verb: str) -> None:
    command = cli.get_command(click.Context(cli), verb)
    (option,) = (one for one in command.params if one.name == "decay")
    assert tuple(option.type.choices) == DECAYS
