"""`zoo pull`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .output import write_json
from .parameters import json_option


@click.command("pull")
@click.argument("repo_id", metavar="REPO[@REVISION]")
@click.argument("local_dir", type=click.Path(path_type=Path), metavar="[DIR]", required=False)
@click.option("--revision", metavar="REVISION", help="A branch, tag or commit. [default: main]")
@click.option("--cache-dir", type=click.Path(path_type=Path), metavar="DIR", help="The cache to use.")
@click.option("--offline", is_flag=True, help="Look into the cache only.")
@click.option("--force-download", is_flag=True, help="Download what is there already.")
@click.option("--trust-remote-code", is_flag=True, help="Allow code from the repository; read it first.")
@click.option("--token", metavar="TOKEN", help="An access token; better in HF_TOKEN or by `hf auth login`.")
@json_option
def pull(repo_id: str, local_dir: Path | None, as_json: bool, **options: Any) -> None:
    """Pull a model from the Hugging Face Hub, into the cache or into DIR.

    Every file is compared with the Hub's checksum; only safetensors are pulled. Prints the folder.
    """
    from zoo.hub import pull as pull_model

    folder = pull_model(repo_id, local_dir, **options)
    if as_json:
        write_json({"repo_id": repo_id, "path": str(folder)})
    else:
        click.echo(str(folder))
