"""A Space for a model: the explorer with this model in it."""

from __future__ import annotations

import importlib.metadata
from functools import partial
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, SpaceCard, SpaceCardData

from zoo.base.folders import relative_files
from zoo.base.manifest import MANIFEST_FILE

from .addresses import Address
from .client import LIBRARY, Hub

SDK = "6.31.0"  # The version of Gradio that a Space runs

APP = """\"\"\"The explorer for {model}, as `zoo push --space` writes it.\"\"\"

from zoo.inside.explorer import build_page, publish

publish(build_page(["{model}"], others=False))
"""

TEMPLATE = Path(__file__).with_name("space.md.jinja")


def space_files(address: Address, license: str | None = None, page: Path | None = None) -> dict[str, bytes]:
    """Write the files of a Space: of a static page, or of one that runs the explorer by Gradio."""
    model = str(address)
    data = SpaceCardData(
        title=address.repo_id.rpartition("/")[2],
        sdk="static" if page else "gradio",
        sdk_version=None if page else SDK,
        app_file="index.html" if page else "app.py",
        license=license,
        models=[address.repo_id],
        tags=[LIBRARY],
    )
    about: dict[str, Any] = {"model": model, "repo_id": address.repo_id, "static": page is not None}
    text = SpaceCard.from_template(data, template_path=str(TEMPLATE), **about)
    card = {"README.md": f"{text}\n".encode()}
    if page is not None:
        return card | {path: (page / path).read_bytes() for path in relative_files(page) if path != MANIFEST_FILE}
    requirement = f"{LIBRARY}[explore]=={importlib.metadata.version(LIBRARY)}\n"
    return card | {"app.py": APP.format(model=model).encode(), "requirements.txt": requirement.encode()}


def push_space(hub: Hub, address: Address, files: dict[str, bytes], private: bool | None) -> str:
    """Create or update the Space that has the model's name. Other files in it stay."""
    sdk = "gradio" if "app.py" in files else "static"
    at: dict[str, Any] = {"repo_id": address.repo_id, "repo_type": "space"}
    create = partial(hub.api.create_repo, space_sdk=sdk, private=private, exist_ok=True, **at)
    url = hub.ask("creating the Space", address, create)
    added = [CommitOperationAdd(path, content) for path, content in files.items()]
    write = partial(hub.api.create_commit, operations=added, commit_message=f"Explore {address}", **at)
    try:
        hub.ask("writing the Space", address, write)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"its Space may have been written or not; look at {url}") from None
    return str(url)
