"""What happens to a trained model on the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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
