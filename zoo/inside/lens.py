"""Predictions of a decoder that stops after each of its layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from zoo.base.errors import ConfigError
from zoo.base.printed import Note, Part, Printed, Table
from zoo.models.stack import stacks_of
from zoo.models.validation import require_at_least
from zoo.training.generation import load_checkpoint
from zoo.training.generation.checkpoint import TokenizerSource

from .texts import inputs_of, readable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class LogitLens(Printed):
    """The model's own output projection, read after every layer (nostalgebraist 2020, "The Logit Lens").

    The first row is the embedding, the last one the model's own prediction.

    Attributes:
        tokens: Input of the decoder.
        right: The token that follows each of them; None where nothing does.
        top: The most probable tokens, the best one first, by row and position.
        probabilities: Theirs. *Shape:* (num_layers + 1, seq_len, num_top)
        right_probability: Of the token that follows, NaN where nothing does. *Shape:* (num_layers + 1, seq_len)
    """

    tokens: tuple[str, ...]
    right: tuple[str | None, ...]
    top: tuple[tuple[tuple[str, ...], ...], ...]
    probabilities: NDArray[np.float32]
    right_probability: NDArray[np.float32]

    def shown(self) -> Iterator[Part]:
        """The best token of every layer and position, the last layer on top, on the colour of its probability."""
        layers = range(len(self.top) - 1, -1, -1)
        names = self.layer_names
        rows = [(names[layer], *(tokens[0] for tokens in self.top[layer])) for layer in layers]
        shades = [[float(one) for one in self.probabilities[layer, :, 0]] for layer in layers]
        yield Table(rows, ("has read", *self.tokens), shades=shades)
        yield Note("The token that each layer finds most probable next; the stronger the colour, the surer it is.")

    @property
    def layer_names(self) -> list[str]:
        """Names of the rows, the embedding first."""
        return ["embedding", *(f"layer {number}" for number in range(1, len(self.top)))]

    def to_records(self) -> list[dict[str, Any]]:
        """Write it as plain data, a record a layer (0 is the embedding) and position, e.g. for `pandas.DataFrame`."""
        return [
            {
                "layer": layer,
                "position": position,
                "token": self.tokens[position],
                "right": self.right[position],
                "right_probability": None if np.isnan(probability) else float(probability),
                "top": list(self.top[layer][position]),
                "top_probabilities": [float(one) for one in self.probabilities[layer, position]],
            }
            for (layer, position), probability in np.ndenumerate(self.right_probability)
        ]

    def figure(self) -> Figure:
        """Draw the best tokens on colours of their probabilities, the last layer on top, right ones underlined."""
        from .heatmaps import new_figure, plain

        best = self.probabilities[..., 0]
        figure = new_figure(max(4.0, 0.75 * len(self.tokens)) + 1.6, 0.42 * len(best) + 1.6)
        panel = figure.subplots()
        image = panel.imshow(best, cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto", origin="lower")
        for (layer, position), probability in np.ndenumerate(best):
            token = self.top[layer][position][0]
            colour = "black" if probability > 0.6 else "white"
            panel.text(position, layer, plain(token), ha="center", va="center", fontsize=7, color=colour)
            if token == self.right[position]:
                panel.plot([position - 0.35, position + 0.35], [layer - 0.32] * 2, color=colour, linewidth=1.2)
        panel.set_xticks(range(len(self.tokens)), [plain(token) for token in self.tokens], rotation=90, fontsize=8)
        panel.set_yticks(range(len(best)), self.layer_names, fontsize=8)
        panel.set_xlabel("What the decoder has read last")
        figure.colorbar(image, label="probability of the best token")
        return figure


@torch.no_grad()
def logit_lens(
    model: str | Path | PreTrainedModel,
    source: str,
    target: str | None = None,
    *,
    top: int = 5,
    tokenizer: TokenizerSource | None = None,
    device: str | torch.device | None = None,
) -> LogitLens:
    """Predict after each layer of a decoder, by its final norm and projection (logit lens).

    Arguments as for [`zoo.inside.attention`][], for a model that predicts the next token; `top` tokens are kept.

    Returns:
        The most probable tokens of every layer and position, and the probability of the right one.

    Raises:
        ConfigError: When the model does not predict the next token, or `top` is less than one.
    """
    require_at_least(1, top=top)
    loaded, tokenizers = load_checkpoint(model, tokenizer=tokenizer, device=device, engine="torch")
    if not loaded.can_generate():
        raise ConfigError(
            f"a {type(loaded).__name__} predicts no next token; valid are models for causal-lm and seq2seq-lm"
        )
    inputs = inputs_of(loaded, tokenizers, [source], None if target is None else [target])
    outputs = loaded(**inputs.arguments, output_hidden_states=True)
    is_encoder_decoder = loaded.config.is_encoder_decoder
    between = outputs.decoder_hidden_states if is_encoder_decoder else outputs.hidden_states
    stack = stacks_of(loaded)["decoder"]
    states = [*(stack.norm(stack.stream(state)) for state in between[:-1]), between[-1]]  # the last is normed already
    probabilities = torch.stack([loaded.project(state)[0].float().softmax(dim=-1) for state in states])
    best = probabilities.topk(min(top, probabilities.shape[-1]), dim=-1)
    labels = inputs.labels[0]
    found = probabilities.gather(-1, labels.clamp(min=0)[None, :, None].expand(len(states), -1, 1))[..., 0]
    writer = tokenizers.target if is_encoder_decoder else tokenizers.source
    ids = sorted({*best.indices.unique().tolist(), *labels[labels >= 0].tolist()})
    names = dict(zip(ids, readable(writer, ids), strict=True))
    return LogitLens(
        tokens=inputs.tokens["decoder"][0],
        right=tuple(None if label < 0 else names[label] for label in labels.tolist()),
        top=tuple(tuple(tuple(names[one] for one in row) for row in layer) for layer in best.indices.tolist()),
        probabilities=best.values.cpu().numpy(),
        right_probability=found.masked_fill(labels < 0, float("nan")).cpu().numpy(),
    )
