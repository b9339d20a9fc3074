"""From a model to the Hub, in one commit: exports, repository and branch are made where they are not there."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.base.errors import CheckpointError, InputError
from zoo.base.files import read_object
from zoo.base.folders import RESULT_FILE, REVISIONS_SUFFIX, scratch_folder
from zoo.base.interrupts import interrupts_counted

from .addresses import MAIN, Address, parse_address
from .cards import CardFacts, push_space, space_files, write_card
from .checksums import is_intact
from .client import LIBRARY, Hub, token_in_use
from .commits import Change
from .errors import HubError, KeptCardWarning, RepoIdError, RevisionMissingError, VisibilityError
from .folders import CARD, CONFIG, INDEX, WEIGHTS, PushedFile, files_to_push, refuse_secrets
from .records import find_result, find_results, recipe_of, recorded_license, recorded_limits, run_of, without_places
from .retries import RetryPolicy

if TYPE_CHECKING:
    from huggingface_hub import EvalResult
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from zoo.converters import ExportReport


def require_repository(hub: Hub, address: Address, private: bool | None) -> Address:
    create = partial(hub.api.create_repo, address.repo_id, private=private, exist_ok=True)
    url = hub.ask("creating the repository", address, create)
    if url.repo_type not in (None, "model"):
        raise HubError(f"{address.repo_id} is the name of a {url.repo_type}, so no model can have it")
    address = replace(address, repo_id=url.repo_id)
    if private is not None:
        info = hub.ask("looking up who sees the repository", address, lambda: hub.api.model_info(address.repo_id))
        if bool(info.private) != private:
            is_now, wanted = ("public", "private") if private else ("private", "public")
            raise VisibilityError(
                f"{address.repo_id} is there already and is {is_now}, but {wanted} was asked for; nothing was pushed: "
                f"change it at {hub.api.endpoint}/{address.repo_id}/settings, or push to another repository"
            )
    return address


def require_branch(hub: Hub, address: Address) -> str:
    try:
        return hub.resolve(address)
    except RevisionMissingError:
        create = partial(hub.api.create_branch, address.repo_id, branch=address.revision, exist_ok=True)
        hub.ask("creating the branch", address, create)
        return hub.resolve(address)


def are_weights(path: str) -> bool:
    return "/" not in path and (fnmatchcase(path, WEIGHTS) or path == INDEX)


def stale_weights(files: Iterable[str], there: Iterable[str]) -> list[str]:
    """List weights of an earlier push that a loader would prefer to, or mix up with, the new ones."""
    pushed = set(files)
    if not any(are_weights(path) for path in pushed):
        return []
    return sorted(path for path in there if are_weights(path) and path not in pushed)


BUNDLE = "bundle"
NATIVE_REVISION = "native"  # The branch that holds the native export
ATTRIBUTES = ".gitattributes"  # Files that every repository keeps


def what_was_verified(export: ExportReport) -> Mapping[str, Any]:
    """Describe on a model card what is known about an export."""
    if export.difference is None:
        return {"target": export.target, "verified": "no", "difference": "not measured"}
    verified = "yes, without the zoo, on random padded batches"
    return {"target": export.target, "verified": verified, "difference": f"{export.difference.float32:.1e} in float32"}


@dataclass(frozen=True)
class PushReport:
    """Report of a push, or of a dry run."""

    repo_id: str  # The repository
    revision: str  # Its branch
    files: Mapping[str, int]  # Path and size in bytes of every file
    native_files: Mapping[str, int]  # The same of the native export, which goes to its own branch
    left_out: tuple[str, ...] = ()  # Paths of files in the folder that do not belong to a model and are not pushed
    kept: tuple[str, ...] = ()  # Paths of files that were on the branch, or on main where it begins, and stay
    dry_run: bool = False  # Whether nothing was done
    commit: str | None = None  # The commit's hash
    url: str | None = None  # Where to look at it
    pull_request: str | None = None  # The address of the pull request, if one was opened
    # Path and size of the files of the Space, if one was asked for
    space_files: Mapping[str, int] = field(default_factory=dict)
    space: str | None = None  # Where to look at the Space
    # Branches of models that were saved during training, with their commits; None of a dry run
    revisions: Mapping[str, str | None] = field(default_factory=dict)


def push(
    model: PreTrainedModel | str | Path,
    repo_id: str,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    revision: str | None = None,
    private: bool | None = None,
    create_pr: bool = False,
    commit_message: str | None = None,
    tags: Iterable[str] = (),
    license: str | None = None,
    recipe: Mapping[str, Any] | None = None,
    eval_results: Iterable[EvalResult | Mapping[str, Any]] | None = None,
    overwrite_card: bool = False,
    with_code: bool = False,
    native: bool | str = False,
    space: bool | str | Path = False,
    revisions: bool = False,
    dry_run: bool = False,
    allow_secrets: bool = False,
    max_shard_size: str | int = "5GB",
    token: str | bool | None = None,
    retry_policy: RetryPolicy | None = None,
) -> PushReport:
    """Push a model to the Hub, in one commit.

    The repository is created where it does not exist, and so is the branch, which begins as main. Files that are there
    stay, except for weights that are not part of this push. Where something goes wrong, the repository is as before.

    Args:
        model: A model, a checkpoint's folder, the name of weights, or an export. Files of a folder are pushed by a
            list of names: safe weights, configurations, tokenizers, the code that config.json names, cards.
        repo_id: "org/name" or "name", possibly with "@branch".
        tokenizer: Saved next to a model.
        revision: The branch to push to, by default "main".
        private: Whether the repository is private: a new one is made so, another one has to be; by default as the
            owner's settings.
        create_pr: Whether to open a pull request instead.
        commit_message: Message of the commit.
        tags: Words to find the repository by, besides the variant's name.
        license: The licence's identifier on the card, by default that of weights by name. None is made up.
        recipe: How it was trained, for the card; by default a comparison's record next to the checkpoint.
        eval_results: How well it does, for the card: `EvalResult`s or mappings with their fields; by default what
            `zoo evaluate --save` wrote into the folder, or else likewise.
        overwrite_card: Whether to replace a README that is there, in the folder or in the repository. Where one is
            kept that a new card would differ from, a KeptCardWarning is given. A new branch always gets a new one.
        with_code: Whether to push the code that loads the model where the zoo is not installed.
        native: Whether to push an export to a class of transformers as well, to the branch "native"; or which class's.
        space: Whether to write a Space of the same name, on which the model can be explored, as well; or the folder of
            a static page for it, as `zoo.inside.browser.write_site` writes it.
        revisions: Whether to push the models in the folder MODEL-revisions (`zoo train --checkpoint-at`) as well, each
            in one commit to a branch that has its name, such as "chck_1M". The code goes with them as with the model.
        dry_run: Whether to only list what would be pushed. Nothing is asked of the Hub then.
        allow_secrets: Whether to push files in which an access token or another secret was found.
        max_shard_size: From which size on a model's weights are split.
        token: As for huggingface_hub: None for the one that is stored or in HF_TOKEN.
        retry_policy: Time-outs and retries.

    Returns:
        A report with the files and the address.

    Raises:
        CheckpointError: When a folder is no checkpoint, or a damaged one.
        SecretError: When a file holds a secret, and `allow_secrets` was not given.
        HubError: When the Hub refuses, cannot be reached, or was changed meanwhile.
    """
    address = parse_address(repo_id, revision)
    check_branch(address, create_pr=create_pr, native=native, space=space, revisions=revisions)
    of_run = models_of_run(model) if revisions else {}
    tags = tuple(tags)
    about: dict[str, Any] = {"tags": tags, "license": license, "recipe": recipe, "commit_message": commit_message}
    access: dict[str, Any] = {"token": token, "retry_policy": retry_policy, "allow_secrets": allow_secrets}
    push_revisions: Any = partial(_push_revisions, of_run, with_code=with_code, dry_run=dry_run, **about, **access)
    from zoo.converters import export

    with interrupts_heard() as done, as_folder(model, tokenizer, max_shard_size) as (folder, workshop):
        of_model, left_out = files_to_push(folder)  # refuses what is no checkpoint before anything is exported
        code = export(folder, workshop / "bundle", BUNDLE) if with_code else None
        foreign = export(folder, workshop / "native", native if isinstance(native, str) else None) if native else None
        files = {file.path: file for file in of_model}
        if code:
            files = with_bundle(files, folder, code)
        own_card = (folder / CARD).is_file() and not overwrite_card
        if RESULT_FILE in files:
            content = json.dumps(without_places(find_result(folder)), indent=2, ensure_ascii=False).encode()
            files[RESULT_FILE] = PushedFile(RESULT_FILE, len(content), content)
        if own_card:
            content = (folder / CARD).read_bytes()
            if tags or license or recipe or eval_results:
                warn_of_kept_card(folder / CARD)
        else:
            shown = None
            if foreign is not None:
                shown = {"target": foreign.target, "auto_class": foreign.auto_class, "revision": NATIVE_REVISION}
            facts = CardFacts(
                tags=tags,
                license=license if license is not None else recorded_license(folder),
                recipe=recipe if recipe is not None else recipe_of(find_result(folder)),
                eval_results=tuple(eval_results if eval_results is not None else find_results(folder)),
                limits=recorded_limits(folder),
                exports=tuple(what_was_verified(one) for one in (code, foreign) if one),
                native=shown,
                space=bool(space),
            )
            content = write_card(code.folder if code else folder, address, facts).encode()
        files[CARD] = PushedFile(CARD, len(content), content)
        foreign_files = {file.path: file for file in files_to_push(foreign.folder)[0]} if foreign else {}
        static = Path(space) if isinstance(space, (str, Path)) else None
        page = space_files(address, license or recorded_license(folder), static) if space else {}
        if not allow_secrets:
            message_file = PushedFile("the commit message", 0, (commit_message or "").encode())
            refuse_secrets([*files.values(), *foreign_files.values(), message_file], token_in_use(token))
        sizes = (_sizes(files), _sizes(foreign_files))
        report = PushReport(address.repo_id, address.revision, *sizes, tuple(left_out), dry_run=dry_run)
        report = replace(report, space_files={path: len(content) for path, content in page.items()})
        if dry_run:
            return replace(report, revisions=push_revisions(address, [], overwrite_card=overwrite_card))
        hub = Hub(token, retry_policy)
        address = require_repository(hub, address, private)
        message = commit_message or f"Push {'a model' if isinstance(model, (str, Path)) else type(model).__name__}"
        parent = require_branch(hub, address)
        there = hub.files(address, parent)
        begins = address.revision != MAIN and parent == hub.resolve(replace(address, revision=MAIN))
        if CARD in there and not own_card and not overwrite_card and not begins:
            del files[CARD]
            if not is_intact(there[CARD], content):
                warn_of_kept_card(f"{CARD} of {address}")
        stale = stale_weights(files, there)
        kept = tuple(path for path in there if path not in {*files, *stale, ATTRIBUTES, CARD})
        landed = Change(hub, address, parent, list(files.values()), stale, message, create_pr).commit()
        done.append(f"{address} was pushed (commit {landed.commit})")
        if foreign_files:
            push_native(hub, address, foreign_files, message, landed.commit)
            done.append("its native export was pushed")
        at = push_space(hub, address, page, private) if space else None
        branches = push_revisions(address, done, overwrite_card=overwrite_card)
    url = f"{hub.api.endpoint}/{address.repo_id}/tree/{address.revision}"
    report = replace(report, repo_id=address.repo_id, files=_sizes(files), kept=kept, space=at, revisions=branches)
    return replace(report, commit=landed.commit, url=url, pull_request=landed.pull_request)


@contextmanager
def interrupts_heard() -> Iterator[list[str]]:
    """End a block by a KeyboardInterrupt that reports what was done, also where other code swallows the first one."""
    done: list[str] = []
    with interrupts_counted() as heard:
        try:
            yield done
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            if not (interrupted or heard):
                raise
            message = "; ".join(filter(None, (*done, str(error) if interrupted else "")))
            raise KeyboardInterrupt(message or "nothing was pushed") from None
    if heard:
        raise KeyboardInterrupt("; ".join(done) or "nothing was pushed")


def check_branch(address: Address, *, create_pr: bool, **others: object) -> None:
    """Refuse a pull request of what goes elsewhere, and a model on the branch of its native export."""
    if create_pr and address.revision != MAIN:
        raise RepoIdError(f"a pull request is opened against {MAIN!r}, but revision={address.revision!r} was given")
    elsewhere = {
        "native": f"a native export, which goes to the branch {NATIVE_REVISION!r}",
        "space": "a Space, in which the model of the main branch is explored",
        "revisions": "revisions, which go to branches of their own",
    }
    for name, what in elsewhere.items():
        if create_pr and others[name]:
            raise RepoIdError(f"a pull request cannot hold {what}")
    if others["native"] and address.revision == NATIVE_REVISION:
        raise RepoIdError(f"the native export replaces all files of the branch {NATIVE_REVISION!r}: give another")


def with_bundle(files: dict[str, PushedFile], folder: Path, bundle: ExportReport) -> dict[str, PushedFile]:
    """Files of a checkpoint and of its bundle; numbers are recorded with the hashes of weights, so the zoo's stay."""
    bundled = {file.path: file for file in files_to_push(bundle.folder)[0]}
    if read_object(folder / CONFIG).get("model_type") == LIBRARY:
        return files | {path: file for path, file in bundled.items() if not are_weights(path)}
    return {path: file for path, file in files.items() if not are_weights(path)} | bundled


def warn_of_kept_card(card: str | Path) -> None:
    message = f"{card} is kept, and has nothing of what this push would write"
    warnings.warn(f"{message}; overwrite_card=True (--overwrite-card) replaces it", KeptCardWarning, stacklevel=3)


def models_of_run(model: PreTrainedModel | str | Path) -> dict[str, Path]:
    """Folders, by name, of the models that were saved during a model's training."""
    place = Path(f"{Path(model)}{REVISIONS_SUFFIX}") if isinstance(model, (str, Path)) else None
    found = {} if place is None else {file.parent.name: file.parent for file in sorted(place.glob(f"*/{CONFIG}"))}
    if not found:
        problem = f"{place or type(model).__name__} holds no models to push as revisions"
        raise CheckpointError(f"{problem}; `zoo train --checkpoint-at` writes them")
    run = run_of(find_result(Path(str(model))))
    for folder in found.values():
        if run_of(find_result(folder)) != run:
            raise CheckpointError(f"{folder} was saved in another run than {model}; remove it, or push it alone")
    return found


def _push_revisions(
    folders: Mapping[str, Path], address: Address, done: list[str], **options: Any
) -> dict[str, str | None]:
    """Push each folder to the branch of its name; those that were pushed are added to `done`."""
    commits = {}
    for name, folder in folders.items():
        commits[name] = push(folder, address.repo_id, revision=name, **options).commit
        done.append(f"{name} was pushed")
    return commits


def push_native(hub: Hub, address: Address, files: Mapping[str, PushedFile], message: str, pushed: str) -> None:
    """Let the native export's branch hold the export and nothing else, after the model itself has been pushed."""
    branch = replace(address, revision=NATIVE_REVISION)
    try:
        parent = require_branch(hub, branch)
        others = [path for path in hub.files(branch, parent) if path not in (*files, ATTRIBUTES)]
        Change(hub, branch, parent, list(files.values()), others, message).commit()
    except HubError as error:
        raise type(error)(f"{address} was pushed (commit {pushed}), its native export was not: {error}") from None


def _sizes(files: Mapping[str, PushedFile]) -> dict[str, int]:
    return {path: files[path].size for path in sorted(files)}


@contextmanager
def as_folder(
    model: PreTrainedModel | str | Path, tokenizer: PreTrainedTokenizerBase | None, max_shard_size: str | int
) -> Iterator[tuple[Path, Path]]:
    with scratch_folder() as workshop:
        if isinstance(model, (str, Path)):
            if tokenizer is not None:
                raise CheckpointError(f"a tokenizer was given with the folder {model}; save it there instead")
            from zoo.building.weights import locate

            yield locate(model), workshop
            return
        from transformers import PreTrainedModel

        from zoo.models.wrapped import plain_model

        model = plain_model(model)
        if not isinstance(model, PreTrainedModel):
            raise InputError(f"a {type(model).__name__} was given; give a model, or the folder of one")
        folder = workshop / "checkpoint"
        model.save_pretrained(folder, max_shard_size=max_shard_size)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
        yield folder, workshop
