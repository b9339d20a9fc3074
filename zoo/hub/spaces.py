"""A Space for a model: the explorer with this model in it."""

from __future__ import annotations

import importlib.metadata

from huggingface_hub import CommitOperationAdd, SpaceCard, SpaceCardData

from .addresses import Address
from .client import LIBRARY, Hub

SDK = "6.31.0"
"""The version of Gradio that a Space runs."""

APP = """\"\"\"The explorer for {model}, as `zoo push --space` writes it.\"\"\"

from zoo.inside.explorer import build_page, publish

publish(build_page(["{model}"], others=False))
"""

WORDS = """# {model}

Look at what [{model}](https://huggingface.co/{repo_id}) says, attends to, and would say after each of its
layers, at its drawing with the shapes of what you type, and at its quirks. `zoo explore {model}` shows the same on your
machine.
"""


def space_files(address: Address, license: str | None = None) -> dict[str, bytes]:
    """Write what a Space consists of."""
    model = str(address)
    data = SpaceCardData(
        title=address.repo_id.rpartition("/")[2],
        sdk="gradio",
        sdk_version=SDK,
        app_file="app.py",
        license=license,
        models=[address.repo_id],
        tags=[LIBRARY],
    )
    card = SpaceCard(f"---\n{data.to_yaml()}\n---\n\n{WORDS.format(model=model, repo_id=address.repo_id)}")
    files = {
        "README.md": str(card),
        "app.py": APP.format(model=model),
        "requirements.txt": f"{LIBRARY}[explore]=={importlib.metadata.version(LIBRARY)}\n",
    }
    return {path: text.encode() for path, text in files.items()}


def push_space(hub: Hub, address: Address, files: dict[str, bytes], private: bool | None) -> str:
    """Create or update the Space that has the model's name. Other files in it stay."""
    url = hub.ask(
        "creating the Space",
        address,
        lambda: hub.api.create_repo(
            address.repo_id, repo_type="space", space_sdk="gradio", private=private, exist_ok=True
        ),
    )
    added = [CommitOperationAdd(path, content) for path, content in files.items()]
    try:
        hub.ask(
            "writing the Space",
            address,
            lambda: hub.api.create_commit(
                address.repo_id, added, repo_type="space", commit_message=f"Explore {address}"
            ),
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"its Space may have been written or not; look at {url}") from None
    return str(url)
