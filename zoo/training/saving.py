"""Writing trained models, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from transformers import PreTrainedModel

from zoo.base.errors import UnwritableError, ZooError
from zoo.base.files import write_file
from zoo.base.folders import RESULT_FILE, written_whole
from zoo.base.manifest import recorded
from zoo.data.tasks import Tokenizers

from .record import RunRecord, read_result

if TYPE_CHECKING:
    from zoo.hub import PushReport


def check_push(repo_id: str | None) -> None:
    """Check before training that a model can be pushed; a missing repository is created."""
    if repo_id is None:
        return
    from zoo.hub.addresses import parse_address
    from zoo.hub.client import Hub
    from zoo.hub.pushing import require_repository

    require_repository(Hub(), parse_address(repo_id), private=None)


def push_result(folder: str | Path, repo_id: str | None, *, revisions: bool) -> PushReport | None:
    """Push a trained model, with its recipe and its numbers on the card, and those of `checkpoint_at` to branches."""
    if repo_id is None:
        return None
    from zoo.hub import push

    return push(folder, repo_id, revisions=revisions)


def save_checkpoint(
    model: PreTrainedModel,
    tokenizers: Tokenizers,
    folder: str | Path,
    *,
    force: bool = False,
    state_dict: dict[str, Any] | None = None,
    run: RunRecord | None = None,
) -> None:
    """Save a model as safetensors, with its tokenizers beside it, whole or not at all.

    Args:
        folder: Where to; `AutoModel` and `AutoTokenizer` load from it.
        force: Whether a saved model there may be replaced.
        state_dict: The weights, where the model itself has only a part of them.
        run: The run that made it, so that it is evaluated likewise.

    Raises:
        OutputExistsError: When the folder holds files that may not be replaced.
        UnwritableError: When the disk does not take it; what was in the folder is still there then.
    """
    with explained(folder), written_whole(Path(folder), force=force) as place:
        model.save_pretrained(place, state_dict=state_dict)
        tokenizers.save(place, model.config.max_position_embeddings)
        if run is not None:
            write_file(place / RESULT_FILE, as_json(run.to_dict()))


def keep_report(folder: str | Path, report: Mapping[str, Any], key: str = "report") -> None:
    """Write the numbers of a run into its record, for the model's card."""
    file = Path(folder) / RESULT_FILE
    with explained(file), recorded(Path(folder)):
        write_file(file, as_json({**read_result(folder), key: dict(report)}))


def is_unscored(folder: str | Path) -> bool:
    """Whether a folder holds a model whose run was interrupted between its last step and its numbers."""
    result = read_result(folder)
    return "recipe" in result and "report" not in result


def as_json(content: Mapping[str, Any]) -> str:
    """Write plain data."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


@contextmanager
def explained(place: str | Path, kept: str | None = None) -> Iterator[None]:
    """Say in one line why something could not be written."""
    try:
        yield
    except ZooError:
        raise
    except (OSError, RuntimeError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error).strip().partition("\n")[0]
        left = f"; {kept} is intact" if kept else ""
        raise UnwritableError(f"{place} cannot be written: {reason}{left}") from error
