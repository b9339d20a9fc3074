"""Models that run in another engine than torch, behind the interface of a model of transformers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers import GenerationConfig, PreTrainedModel
from transformers.utils import GENERATION_CONFIG_NAME

from zoo.errors import UnsupportedOperationError
from zoo.models import Position, ZooConfig
from zoo.models.transformer import transformer_of


class NoPosition(Position):
    """Stands for a position part that is inside of an export, and knows its limit.

    Args:
        config: The configuration of the stack.
    """

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        with torch.device("meta"):
            part = transformer_of(config).build_position(copy.deepcopy(config))
        self.max_length, self.rule = part.max_length, part.count

    def count(self, inputs_embeds: torch.Tensor, attention_mask: Any = None, seen: Any = 0) -> torch.Tensor:
        """Number the tokens as the part does. Arguments as in the base class."""
        return self.rule(inputs_embeds, attention_mask, seen)


class EngineModel(PreTrainedModel):
    """An export as a model of transformers. It has no parameters: the engine holds the weights.

    Args:
        config: The configuration of the model that was exported.
        folder: Where the export is.
    """

    config: ZooConfig
    only_generates: ClassVar[str] = ""
    """Why nothing but `generate` runs, where the engine returns no logits."""
    main_input_name = "input_ids"
    _supports_sdpa = True

    def __init__(self, config: ZooConfig, folder: Path) -> None:
        super().__init__(config)
        stacks = [config.decoder_config()] if config.is_encoder_decoder else []
        # How long inputs may be is asked of a model's position parts.
        self.positions = torch.nn.ModuleList([NoPosition(stack) for stack in (config, *stacks)])
        if (folder / GENERATION_CONFIG_NAME).is_file() and self.can_generate():
            self.generation_config = GenerationConfig.from_pretrained(folder)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse to compute logits, which only some engines return.

        Raises:
            UnsupportedOperationError: Always.
        """
        raise UnsupportedOperationError(self.only_generates)

    @property
    def device(self) -> torch.device:
        """Where inputs belong."""
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        """The type that outputs have."""
        return torch.float32
