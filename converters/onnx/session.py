"""Graphs behind the interface of a model of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zoo.errors import CheckpointError, UnsupportedOperationError
from zoo.models import ZooConfig
from zoo.models.transformer import Transformer, transformer_of

from ..engine import EngineModel
from .target import GRAPH_ENDING


def open_session(path: Path) -> Any:
    """Load a graph.

    Returns:
        A session of ONNX Runtime, on as many threads as torch has.

    Raises:
        CheckpointError: When the file is damaged.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        # Its own exceptions have no common base but this one.
        raise CheckpointError(f"ONNX Runtime cannot load {path}: {str(error).splitlines()[0]}") from error


class OnnxBase(EngineModel):
    """Graphs as a model of transformers.

    Args:
        config: The configuration of the model that was exported.
        folder: Where the graphs are.
    """

    def __init__(self, config: ZooConfig, folder: Path) -> None:
        super().__init__(config, folder)
        self.sessions = {path.stem: open_session(path) for path in sorted(folder.glob(f"*{GRAPH_ENDING}"))}

    @property
    def rules(self) -> Transformer:
        """The variant's own rules for masks and decoder inputs, which stay outside of the graphs."""
        return transformer_of(self.config)

    def run(self, name: str, given: dict[str, Tensor]) -> dict[str, Tensor]:
        """Run a graph.

        Args:
            name: Its name.
            given: Inputs by name; those that the graph does not read are left out.

        Returns:
            Outputs by name.
        """
        session = self.sessions[name]
        read = {entry.name: given[entry.name].contiguous().numpy() for entry in session.get_inputs()}
        names = [entry.name for entry in session.get_outputs()]
        return dict(zip(names, map(torch.from_numpy, session.run(names, read)), strict=True))

    def mask(self, attention_mask: Tensor | None, input_ids: Tensor, seen: int = 0) -> Tensor:
        """A padding mask where none was given, by the variant's rule.

        Args:
            attention_mask: The given mask.
            input_ids: *Shape:* (batch_size, seq_len)
            seen: Number of cached positions.

        Returns:
            *Shape:* (batch_size, key_len)
        """
        if attention_mask is None and not seen:
            attention_mask = self.rules.attention_mask(None, input_ids, self.config)
        if attention_mask is None:
            attention_mask = input_ids.new_ones(input_ids.shape[0], seen + input_ids.shape[1])
        return attention_mask.long()

    def refuse(self, options: dict[str, Any]) -> None:
        """Refuse what graphs do not return.

        Args:
            options: What a call asks for.

        Raises:
            UnsupportedOperationError: When it asks for hidden states, attention weights or embeddings.
        """
        names = ("output_attentions", "output_hidden_states", "inputs_embeds", "decoder_inputs_embeds")
        asked = [name for name in names if options.get(name) not in (None, False)]
        if asked:
            raise UnsupportedOperationError(f"an ONNX export has no {', '.join(asked)}; ask the model it was made of")

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        # Generation would prepare a cache that forgets what a sliding window has passed; graphs want all of it.
        return False
