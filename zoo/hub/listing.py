"""The zoo's models on the Hub."""

from __future__ import annotations

from dataclasses import dataclass

from .client import LIBRARY, Hub
from .retries import RetryPolicy


@dataclass(frozen=True)
class HubModel:
    """A model of the zoo on the Hub."""

    repo_id: str  # Its repository
    pipeline: str | None  # The Hub's name of its task
    tags: tuple[str, ...]  # The repository's tags, among them the variant's name
    private: bool  # Whether it is private
    last_modified: str | None  # When it was last changed, as ISO 8601


def list_hub(owner: str, *, token: str | bool | None = None, retry_policy: RetryPolicy | None = None) -> list[HubModel]:
    """List the zoo's models of a user or an organisation: those with the zoo's library tag.

    Args:
        owner: The user's or organisation's name.
        token: As for huggingface_hub: None for the one that is stored or in HF_TOKEN.
        retry_policy: Time-outs and retries.

    Returns:
        The models, sorted by name.

    Raises:
        HubError: When the Hub cannot be asked.
    """
    hub = Hub(token, retry_policy)
    hub.reach()
    found = hub.ask(
        f"listing the models of {owner}",
        None,
        lambda: list(hub.api.list_models(author=owner, filter=LIBRARY)),
        client_retries=True,
    )
    models = [
        HubModel(
            repo_id=model.id,
            pipeline=model.pipeline_tag,
            tags=tuple(tag for tag in model.tags or () if tag != LIBRARY),
            private=bool(model.private),
            last_modified=model.last_modified.isoformat() if model.last_modified else None,
        )
        for model in found
    ]
    return sorted(models, key=lambda model: model.repo_id)
