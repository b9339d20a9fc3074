"""Writing checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from zoo.folders import written_whole
from zoo.tasks import Tokenizers

KEEPING_CHECKPOINTS: dict[str, Any] = {"save_strategy": "epoch", "save_total_limit": 2}
"""Training arguments of a run that can be resumed."""


def save_checkpoint(model: PreTrainedModel, tokenizers: Tokenizers, folder: str | Path, *, force: bool = False) -> None:
    """Save a model as safetensors, with its tokenizers beside it, whole or not at all.

    Args:
        model: The model.
        tokenizers: The tokenizers.
        folder: Where to; `AutoModel` and `AutoTokenizer` load from it.
        force: Whether a saved model there may be replaced.

    Raises:
        OutputExistsError: When the folder holds files that may not be replaced.
    """
    with written_whole(Path(folder), force=force) as place:
        model.save_pretrained(place)
        tokenizers.save(place)


def last_checkpoint(folder: str | Path) -> str | None:
    """Find where a run that was interrupted can go on.

    transformers writes a checkpoint's state last, so one without it was interrupted itself and is passed over.

    Args:
        folder: Where the trainer keeps checkpoints.

    Returns:
        The last whole checkpoint, None where there is none.
    """
    found: dict[int, Path] = {}
    for state in Path(folder).glob(f"{PREFIX_CHECKPOINT_DIR}-*/{TRAINER_STATE_NAME}"):
        try:
            found[json.loads(state.read_text(encoding="utf-8"))["global_step"]] = state.parent
        except (ValueError, KeyError, TypeError):
            continue
    return str(found[max(found)]) if found else None
