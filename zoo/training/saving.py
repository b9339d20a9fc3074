"""Writing checkpoints, and finding them again."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import PreTrainedModel
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from zoo.errors import CheckpointError, ConfigError, OutputExistsError
from zoo.folders import MODEL_FILE, written_whole
from zoo.tasks import Tokenizers

KEEPING_CHECKPOINTS: dict[str, Any] = {"save_strategy": "epoch", "save_total_limit": 2}
"""Training arguments of a run that can be resumed."""

RESULT_FILE = "result.json"
"""Where a checkpoint's folder holds the numbers of its run; a model card is made of them."""

INCIDENTAL = re.compile(r"_.*|.*token_id|transformers_version|dtype|use_cache|architectures")
"""Fields of a configuration that may differ between a run and its continuation."""


class UnwritableError(CheckpointError):
    """A checkpoint that cannot be written, as when the disk is full."""

    exit_code = 1


def save_checkpoint(
    model: PreTrainedModel,
    tokenizers: Tokenizers,
    folder: str | Path,
    *,
    force: bool = False,
    state_dict: dict[str, Any] | None = None,
    report: dict[str, Any] | None = None,
    recipe: dict[str, Any] | None = None,
) -> None:
    """Save a model as safetensors, with its tokenizers beside it, whole or not at all.

    Args:
        model: The model.
        tokenizers: The tokenizers.
        folder: Where to; `AutoModel` and `AutoTokenizer` load from it.
        force: Whether a saved model there may be replaced.
        state_dict: The weights, where the model itself has only a part of them.
        report: The numbers of the run, for the model's card.
        recipe: How the model was trained, so that it is evaluated likewise.

    Raises:
        OutputExistsError: When the folder holds files that may not be replaced.
        UnwritableError: When the disk does not take it; what was in the folder is still there then.
    """
    with explained(folder), written_whole(Path(folder), force=force) as place:
        model.save_pretrained(place, state_dict=state_dict)
        tokenizers.save(place)
        if report is not None:
            result = {"report": report, **({} if recipe is None else {"recipe": recipe})}
            text = json.dumps(result, indent=2, ensure_ascii=False)
            (place / RESULT_FILE).write_text(text + "\n", encoding="utf-8")


@contextmanager
def explained(place: str | Path, kept: str | None = None) -> Iterator[None]:
    """Say in one line why something could not be written.

    Args:
        place: What is written.
        kept: The last checkpoint, if there is one.

    Yields:
        Nothing.

    Raises:
        UnwritableError: When the system, or a library that writes, gives an error.
    """
    try:
        yield
    except OutputExistsError:
        raise
    except (OSError, RuntimeError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error).strip().partition("\n")[0]
        left = f"; {kept} is intact" if kept else ""
        raise UnwritableError(f"{place} cannot be written: {reason}{left}") from error


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


def check_same_model(checkpoint: str | Path, model: PreTrainedModel) -> None:
    """Refuse to go on with another model than the one that a checkpoint is of.

    Args:
        checkpoint: The checkpoint.
        model: The model.

    Raises:
        ConfigError: With the first field that differs.
    """
    saved = json.loads((Path(checkpoint) / MODEL_FILE).read_text(encoding="utf-8"))
    wanted = json.loads(model.config.to_json_string(use_diff=False))
    for field, value in saved.items():
        if field in wanted and wanted[field] != value and not INCIDENTAL.fullmatch(field):
            raise ConfigError(
                f"{checkpoint} is of another model: its {field} is {value!r}, where this one's is {wanted[field]!r}; "
                "give the settings of the interrupted run, or another output folder"
            )


def clear_checkpoints(folder: str | Path, *, force: bool) -> None:
    """Make room for a run that begins anew.

    Args:
        folder: Where the trainer keeps checkpoints.
        force: Whether those of an earlier run may be removed.

    Raises:
        OutputExistsError: When there are some that may not.
    """
    for checkpoint in sorted(Path(folder).glob(f"{PREFIX_CHECKPOINT_DIR}-*")):
        if not force:
            raise OutputExistsError(
                f"{folder} holds checkpoints of an earlier run; go on from them (--resume), remove them (--force), or "
                "choose another output folder"
            )
        shutil.rmtree(checkpoint)
