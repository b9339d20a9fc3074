"""Roles of parameters: matrices, gains, biases, scalars, embeddings and tables. Weight decay and muP go by them.

A module declares the roles of its direct parameters as `parameter_roles`, a mapping from their names. The others
follow from the module's class and the parameter's shape.
"""

from collections.abc import Iterator
from enum import StrEnum

from torch import nn
from transformers import PreTrainedModel

from .parts import NORMS


class Role(StrEnum):
    """Role of a parameter in a model."""

    MATRIX = "matrix"
    """Weights of a linear map or a convolution."""
    GAIN = "gain"
    """A factor for each channel or head, as the weights of norms; other vectors."""
    BIAS = "bias"
    """A summand for each channel, head or expert."""
    SCALAR = "scalar"
    """A single number, or a few that weight streams or branches."""
    EMBEDDING = "embedding"
    """A vector for each id; the output projection too, where it is tied to the embedding."""
    TABLE = "table"
    """Numbers for each position, distance or step."""


DECAY: dict[str, frozenset[Role]] = {
    "matrices": frozenset({Role.MATRIX}),
    "matrices-and-embeddings": frozenset({Role.MATRIX, Role.EMBEDDING, Role.TABLE}),
    "all": frozenset(Role),
}
"""Roles that weight decay applies to: matrices alone (OLMo 2), what has two dimensions (GPT-3, nanoGPT), or all."""


def parameter_roles(model: nn.Module) -> dict[str, Role]:
    norms = tuple(norm for norm in map(NORMS.get, NORMS.names()) if isinstance(norm, type))
    found: dict[int, Role] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            role = role_of(module, name, parameter, norms)
            if found.get(id(parameter)) != Role.EMBEDDING:
                found[id(parameter)] = role
    return {name: found[id(parameter)] for name, parameter in model.named_parameters()}


def role_of(module: nn.Module, name: str, parameter: nn.Parameter, norms: tuple[type, ...]) -> Role:
    declared = getattr(module, "parameter_roles", {})
    if name in declared:
        return Role(declared[name])
    if name.endswith("bias"):
        return Role.BIAS
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return Role.EMBEDDING
    if isinstance(module, nn.Linear) and name == "weight":
        return Role.MATRIX
    if parameter.numel() == 1:
        return Role.SCALAR
    is_vector = sum(size > 1 for size in parameter.shape) < 2
    return Role.GAIN if is_vector or isinstance(module, norms) else Role.MATRIX


def decayed_names(model: nn.Module, decay: str) -> Iterator[str]:
    """List the parameters that weight decay applies to."""
    return (name for name, role in parameter_roles(model).items() if role in DECAY[decay])


def hidden_matrices(model: PreTrainedModel) -> Iterator[nn.Parameter]:
    """List the linear maps of hidden states, of two dimensions: Muon's."""
    head = getattr(model.get_output_embeddings(), "weight", None)
    roles = parameter_roles(model)
    for name, parameter in model.named_parameters():
        if roles[name] == Role.MATRIX and parameter.ndim == 2 and parameter is not head:
            yield parameter
