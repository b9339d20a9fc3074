"""How sharply, and how far, each head looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from zoo.training.generation import load_checkpoint
from zoo.training.generation.checkpoint import TokenizerSource

from .attending import TITLES, attention_weights, layers_of, sides_of
from .texts import inputs_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class HeadStatistics:
    """Statistics of the heads of one kind of attention over texts. Padding neither attends nor is attended to.

    Weights of a query are shares of what falls on tokens: an attention sink or padding may take the rest.

    Attributes:
        kind: "encoder", "decoder" or "cross".
        entropy: Of the weights of a query, in nats, on average: 0 where a head looks at one token only, the logarithm
            of the number of tokens where it looks at all alike (Clark et al. 2019, What Does BERT Look At?, section
            3.3). *Shape:* (num_layers, num_heads)
        distance: From a query to what it attends to, in tokens, on average, weighted by attention (Vig and Belinkov
            2019, Analyzing the Structure of Attention in a Transformer Language Model, section 4.3). None for
            cross-attention: its queries and keys have positions in different texts.
            *Shape:* (num_layers, num_heads)
        layers: Numbers of the layers in the model, counted from 1: those of a mixer have no attention.
    """

    kind: str
    entropy: NDArray[np.float32]
    distance: NDArray[np.float32] | None
    layers: tuple[int, ...]

    def to_records(self) -> list[dict[str, Any]]:
        """Write it as plain data, a record a head, counted from 1 as layers are, e.g. for `pandas.DataFrame`."""
        return [
            {
                "kind": self.kind,
                "layer": self.layers[layer],
                "head": head + 1,
                "entropy": float(entropy),
                "distance": None if self.distance is None else float(self.distance[layer, head]),
            }
            for (layer, head), entropy in np.ndenumerate(self.entropy)
        ]


def head_statistics(
    model: str | Path | PreTrainedModel,
    sources: Sequence[str],
    targets: Sequence[str] | None = None,
    *,
    tokenizer: TokenizerSource | None = None,
    device: str | torch.device | None = None,
) -> list[HeadStatistics]:
    """Measure how sharply and how far each head looks, on average over the tokens of some texts.

    Arguments as for [`zoo.inside.attention`][]; `sources` and `targets` are several texts.

    Returns:
        The numbers of each kind of attention that the model has.
    """
    loaded, tokenizers = load_checkpoint(model, tokenizer=tokenizer, device=device, engine="torch")
    inputs = inputs_of(loaded, tokenizers, sources, targets)
    found = []
    for kind, weights in attention_weights(loaded, inputs).items():
        queries, keys = (inputs.masks[side] for side in sides_of(kind))
        real = shares(weights, keys)
        distance = None if kind == "cross" else average(distances(real), queries)
        found.append(HeadStatistics(kind, average(entropies(real), queries), distance, layers_of(loaded, kind)))
    return found


def shares(weights: Tensor, keys: Tensor) -> Tensor:
    """Weights of every query on real keys, as shares of their sum. *Shape:* as weights."""
    real = weights.double() * keys[:, None, None]
    return real / real.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(real.dtype).tiny)


def entropies(real: Tensor) -> Tensor:
    """Entropy of every query's shares in nats, (num_layers, batch_size, num_heads, num_queries)."""
    return torch.special.entr(real).sum(dim=-1)


def distances(real: Tensor) -> Tensor:
    """Mean distance of every query's shares in tokens, (num_layers, batch_size, num_heads, num_queries)."""
    places = torch.arange(real.shape[-1], device=real.device, dtype=real.dtype)
    return (real * (places[: real.shape[-2], None] - places).abs()).sum(dim=-1)


def average(values: Tensor, queries: Tensor) -> NDArray[np.float32]:
    """Average over real queries: (num_layers, num_heads)."""
    total = (values * queries[:, None]).sum(dim=(1, 3)) / queries.sum()
    return total.float().cpu().numpy()


def heads_figure(statistics: Sequence[HeadStatistics]) -> Figure:
    """Draw the numbers of all heads: a panel a number and kind of attention, layers down, heads across.

    Args:
        statistics: Result of [`head_statistics`][].
    """
    from .heatmaps import new_figure

    kinds = len(statistics)
    figure = new_figure(3.4 * kinds + 0.4, 5.4)
    axes = figure.subplots(2, kinds, squeeze=False)
    for column, one in enumerate(statistics):
        rows = ((one.entropy, "entropy in nats"), (one.distance, "mean distance in tokens"))
        for panel, (values, label) in zip(axes[:, column], rows, strict=True):
            if values is None:
                panel.set_visible(False)
                continue
            image = panel.imshow(values, cmap="viridis", vmin=0.0, aspect="auto")
            panel.set_title(f"{TITLES[one.kind]}\n{label}", fontsize=9)
            panel.set_xticks(range(values.shape[1]), range(1, values.shape[1] + 1))
            panel.set_yticks(range(values.shape[0]), one.layers)
            panel.set_xlabel("Head")
            panel.set_ylabel("Layer")
            figure.colorbar(image, ax=panel)
    return figure
