"""New plugins: a package with one part or variant, and its tests."""

from __future__ import annotations

import re
from pathlib import Path

from zoo.base.errors import NameSyntaxError
from zoo.base.files import write_file
from zoo.base.folders import check_output, written_whole

PYPROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1"
dependencies = ["transformer-zoo"]

[project.entry-points."zoo.plugins"]
{name} = "{module}"

[tool.setuptools]
py-modules = ["{module}"]
"""

NORM = '''\
"""A normalisation with one learned number."""

import torch
from torch import nn
from torch.nn import functional as F
from zoo.models import NORMS


@NORMS.register("{name}")
class ScaleNorm(nn.Module):
    """Vectors of one learned length (Nguyen and Salazar 2019).

    Args:
        width: Size of the last dimension, which is normalised.
        config: The configuration of the model.
    """

    def __init__(self, width, config):
        super().__init__()
        self.weight = nn.Parameter(torch.full((1,), width**0.5))
        self.eps = config.layer_norm_eps

    def forward(self, hidden_states):
        """Normalise the last dimension. *Shape:* (..., width), unchanged."""
        return self.weight * F.normalize(hidden_states, dim=-1, eps=self.eps)
'''

POSITION = '''\
"""Positions that are added to the embeddings."""

from zoo.models import POSITIONS, SinusoidalPosition


@POSITIONS.register("{name}")
class TriangleWaves(SinusoidalPosition):
    """Triangle waves of the sinusoidal wavelengths."""

    def table(self, position_ids):
        """Rows of the table. *Shape:* (batch_size or 1, seq_len, hidden_size)"""
        return super().table(position_ids).asin()
'''

ACTIVATION = '''\
"""An activation of feed-forward networks."""

from torch import nn
from torch.nn import functional as F
from zoo.models import ACTIVATIONS


@ACTIVATIONS.register("{name}")
class CubedReLU(nn.Module):
    """The third power of the positive part."""

    def forward(self, hidden_states):
        """Apply it to every number. *Shape:* any, unchanged."""
        return F.relu(hidden_states) ** 3
'''

MIXER = '''\
"""Token mixing without attention, with a state in the cache."""

import torch
from torch import nn
from torch.nn import functional as F
from zoo.models import MIXERS, Mixer


@MIXERS.register("{name}")
class PrefixSum(Mixer):
    """The sum of the values up to each token, normalised. The state is the sum so far."""

    layer_type = "linear_attention"

    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        self.in_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.out_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def mix(self, hidden_states, past, is_token):
        """Add up the values.

        Args:
            hidden_states: The tokens of every row, then zeros. *Shape:* (batch_size, seq_len, hidden_size)
            past: The layer of the cache with the state of earlier tokens, None without a cache.
            is_token: Which positions hold tokens, None if all do. Zeros, which add nothing, need no look at it.

        Returns:
            *Shape:* as hidden_states.
        """
        sums = self.in_proj(hidden_states).cumsum(dim=1)
        if past is not None:
            if past.has_previous_state[0]:
                sums = sums + past.recurrent_states[0]
            past.update_recurrent_state(sums[:, -1:])
            past.has_previous_state[0] = True
        return self.out_proj(F.rms_norm(sums, sums.shape[-1:], eps=1e-5))
'''

VARIANT = '''\
"""A decoder."""

from zoo.models import Transformer
from zoo.registry import register


@register(
    "{name}",
    tasks=("causal-lm", "sequence-classification"),
    source="the paper or the code that it comes from",
    defaults={{"norm": "rmsnorm", "position": "rotary", "feed_forward": "gated", "hidden_act": "silu"}},
)
def {module}(config):
    """Pre-norm decoder with rotary positions and gated feed-forward networks."""
    return Transformer()
'''

TESTS = '''\
"""The suite that every variant of the zoo passes."""

import {module}  # noqa: F401 - registers the name, whether or not the package is installed
import pytest
from zoo.testing import cases


@pytest.mark.parametrize("case", cases({variant!r}), ids=str)
def test_{module}(case):
    case()
'''

KINDS = {
    "norm": (NORM, "gpt2-style:norm={name}"),
    "position": (POSITION, "gpt2-style:position={name}"),
    "activation": (ACTIVATION, "gpt2-style:hidden_act={name}"),
    "mixer": (MIXER, 'gpt2-style:mixer={name},layer_types=["linear_attention", "full_attention"]'),
    "variant": (VARIANT, "{name}"),
}
"""The source of each kind of plugin, and the variant that its tests build."""


def plugin_files(kind: str, name: str) -> dict[str, str]:
    source, variant = KINDS[kind]
    module = name.replace("-", "_")
    named = {"name": name, "module": module, "variant": variant.format(name=name)}
    files = {"pyproject.toml": PYPROJECT, f"{module}.py": source, f"test_{module}.py": TESTS}
    return {file: content.format(**named) for file, content in files.items()}


def new_plugin(kind: str, folder: Path) -> tuple[str, list[Path]]:
    name = folder.absolute().name
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or name == "zoo":
        raise NameSyntaxError(
            f"{name!r} cannot be the name of a plugin; valid: lower-case letters, digits and hyphens, e.g. my-{kind}"
        )
    check_output(folder)
    files = plugin_files(kind, name)
    with written_whole(folder) as made:
        for file, content in files.items():
            write_file(made / file, content)
    return KINDS[kind][1].format(name=name), [folder / file for file in files]
