"""`zoo push` and `zoo pull`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.base.errors import enumerate_names

from .output import echo, table, write, write_json
from .parameters import PATH, json_option

if TYPE_CHECKING:
    from zoo.hub import PushReport


@click.command("push")
@click.argument("model", metavar="DIR|NAME")
@click.argument("repo_id", metavar="REPO[@REVISION]")
@click.option(
    "--revision", metavar="BRANCH", help="The branch to push to; created where it is missing. [default: main]"
)
@click.option("--private/--public", default=None, help="Who is to see the repository; by default as its owner has set.")
@click.option("--create-pr", is_flag=True, help="Open a pull request instead of moving the branch.")
@click.option("--commit-message", "-m", metavar="TEXT", help="Message of the commit.")
@click.option("--tags", metavar="TAG[,TAG]...", default="", help="Words to find the repository by.")
@click.option("--license", metavar="ID", help="The licence on the model card. None is made up.")
@click.option("--overwrite-card", is_flag=True, help="Replace the README that is there.")
@click.option("--with-code", is_flag=True, help="Push the code too, for use without the zoo.")
@click.option(
    "--native", is_flag=False, flag_value="", metavar="[CLASS]", help="Push a native export to the branch 'native' too."
)
@click.option("--space", is_flag=True, help="Write a Space of the same name, on which the model can be explored.")
@click.option("--revisions", is_flag=True, help="Push the models of `zoo train --checkpoint-at` to branches, too.")
@click.option("--static", is_flag=True, help="Let the Space be static files that run the model in the browser.")
@click.option("--dry-run", is_flag=True, help="List the files and connect to nothing.")
@click.option("--allow-secrets", is_flag=True, help="Push files although secrets were found in them.")
@click.option("--token", metavar="TOKEN", help="An access token; better in HF_TOKEN or by `hf auth login`.")
@json_option
def push(
    model: str, repo_id: str, tags: str, native: str | None, space: bool, static: bool, as_json: bool, **options: Any
) -> None:
    """Push a checkpoint or an export to the Hugging Face Hub, in one commit.

    Files are pushed by a list of names: safe weights, configurations, tokenizers, the code that config.json names,
    cards. Links are refused, and so are files that hold an access token or another secret. A model card is written
    unless it has one. NAME is the name of weights.
    """
    if static and not space:
        raise click.UsageError("--static is an option of --space")
    from zoo.hub import push as push_model

    options["tags"] = [tag.strip() for tag in tags.split(",") if tag.strip()]
    with static_page(model, repo_id) if static else nullcontext(space) as page:
        report = push_model(model, repo_id, native=native or native is not None, space=page, **options)
    if as_json:
        write_json(vars(report))
        return
    if report.dry_run:
        write_files(report)
    else:
        click.echo(f"{report.pull_request or report.url} (commit {report.commit})")
        if report.space:
            click.echo(f"{report.space} (Space)")
        for name, commit in report.revisions.items():
            click.echo(f"{report.repo_id}@{name} (commit {commit})")
    if report.kept:
        click.echo(f"Kept, as they were there: {enumerate_names(report.kept)}", err=True)
    if report.left_out:
        click.echo(f"Not pushed, as they belong to no model: {enumerate_names(report.left_out)}", err=True)


@contextmanager
def static_page(model: str, repo_id: str) -> Iterator[Path]:
    """Write a static page for a model, which has the repository's name there."""
    from zoo.base.folders import scratch_folder
    from zoo.hub import parse_address
    from zoo.inside.browser import write_site

    with scratch_folder() as folder:
        write_site(folder / "page", {parse_address(repo_id).repo_id: model})
        yield folder / "page"


def write_files(report: PushReport) -> None:
    from zoo.hub.pushing import NATIVE_REVISION

    places = {
        f"branch {report.revision}": report.files,
        f"branch {NATIVE_REVISION}": report.native_files,
        "its Space": report.space_files,
    }
    for place, files in places.items():
        if files:
            rows = [(path, f"{size:,}") for path, size in files.items()]
            write(f"Would push to {report.repo_id}, {place}:", table(("File", "Bytes"), rows, right=("Bytes",)))
    if report.revisions:
        click.echo(f"Would push models of the run to branches {enumerate_names(report.revisions)}")


@click.command("pull")
@click.argument("repo_id", metavar="REPO[@REVISION]")
@click.argument("local_dir", type=PATH, metavar="[DIR]", required=False)
@click.option("--revision", metavar="REVISION", help="A branch, tag or commit. [default: main]")
@click.option("--cache-dir", type=PATH, metavar="DIR", help="The cache to use.")
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
    echo(as_json, {"repo_id": repo_id, "path": str(folder)}, str(folder))
