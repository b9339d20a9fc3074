import hashlib
import json
from pathlib import Path

import pytest
from browser_page import PAGE, served
from chromium import Page
from huggingface_hub import ModelCard

import zoo
from zoo.base.folders import EVALUATIONS_FILE
from zoo.cli.push import static_page
from zoo.hub.records import keep_evaluation

from .conftest import READ, STRANGER, WRITE, Start, checkpoint, safetensors, without_attributes, write
from .faults import Fault
from .loopback import LoopbackHub
from .messages import User


def test_a_folder_becomes_one_commit(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    files = checkpoint()
    answer = worker().ok("push", write(tmp_path / "model", files), "org/model", commit_message="Here it is")
    assert without_attributes(hub.storage.contents("org/model")) == files
    repo = hub.storage.repo("org/model")
    history = hub.storage.history(repo, "main")
    assert [repo["commits"][oid]["title"] for oid in history] == ["Here it is", "initial commit"]
    assert answer["commit"] == history[0]
    assert answer["files"] == {path: len(content) for path, content in files.items()}


def test_folders_are_uploaded_without_the_zoo_after_a_push(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    """The client's own ways of uploading stay what they are in a process that has pushed."""
    process, own = worker(), checkpoint(b"uploaded by the client")
    assert process("push", write(tmp_path / "model", checkpoint()), "org/model")["error"] is None
    process.ok("upload", write(tmp_path / "own", own), "org/model")
    assert own.items() <= hub.storage.contents("org/model").items()


def test_a_bundle_goes_up_with_its_code_and_comes_back_without(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    """The zoo runs its own code; the card has the hashes of that on the Hub."""
    folder, process = tmp_path / "bundle", worker()
    zoo.export(zoo.build("gpt2-style@tiny:vocab_size=50", seed=0), folder, "bundle", fresh_process=False)
    assert process("push", folder, "org/bundle")["error"] is None
    files = hub.storage.contents("org/bundle")
    for name in ("configuration_zoo.py", "modeling_zoo.py"):
        assert files[name] == (folder / name).read_bytes()
        assert f"`{hashlib.sha256(files[name]).hexdigest()}`" in files["README.md"].decode()
    pulled = process("pull", "org/bundle")["ok"]
    assert pulled["files"]["model.safetensors"] == hashlib.sha256(files["model.safetensors"]).hexdigest()
    assert not any(name.endswith(".py") for name in pulled["files"])
    assert zoo.load(pulled["folder"]).config.variant == "gpt2-style"


@pytest.mark.usefixtures("in_forks")
def test_code_goes_with_everything_else_of_a_model(tmp_path: Path) -> None:
    zoo.build("gpt2-style@tiny:vocab_size=50", seed=0).save_pretrained(tmp_path, max_shard_size="50KB")
    write(tmp_path, {"LICENSE": b"mine", "notes.txt": b"", **dict.fromkeys(("result.json", EVALUATIONS_FILE), b"{}")})
    plain, coded = (zoo.push(tmp_path, "org/model", with_code=code, dry_run=True) for code in (False, True))
    parts = {path for path in plain.files if path.startswith("model")}
    assert len(parts) > 2 and coded.left_out == plain.left_out == (".zoo-manifest.json", "notes.txt")
    code = {"bundle.json", "configuration_zoo.py", "modeling_zoo.py"}
    assert coded.files.keys() - code == plain.files.keys() and code <= coded.files.keys()


@pytest.mark.slow
def test_numbers_of_a_model_with_code_are_still_its_own_when_it_is_pushed_again(
    hub: LoopbackHub, worker: Start, tmp_path: Path
) -> None:
    zoo.build("gpt2-style@tiny:vocab_size=50", seed=0).save_pretrained(tmp_path / "model", max_shard_size="50KB")
    loss = {"task": "language-modeling", "examples": 40, "loss": 1.5, "scores": {}}
    keep_evaluation(tmp_path / "model", loss, "mine.txt")
    process = worker()
    process.ok("push", tmp_path / "model", "org/model", with_code=True)
    first = hub.storage.contents("org/model")["README.md"].decode()
    process.ok("pull", "org/model", local_dir=tmp_path / "pulled")
    process.ok("push", tmp_path / "pulled", "org/model", with_code=True, overwrite_card=True)
    again = hub.storage.contents("org/model")["README.md"].decode()
    assert "| language-modeling | mine.txt, 40 examples | Loss, nats per label | 1.5 |" in first and again == first


def test_pushing_the_same_again_changes_nothing(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    folder, process = write(tmp_path / "model", checkpoint()), worker()
    first = process("push", folder, "org/model")["ok"]["commit"]
    assert process("push", folder, "org/model")["ok"]["commit"] == first


LITTER = (
    *("pytorch_model.bin", "MODEL.PT", "adapter_model.bin", "deep/down/pytorch_model.bin", "deep/down/model.bin"),
    *("optimizer.pt", "optimizer.bin", "scheduler.bin", "training_args.bin", "trainer_state.json", "x.PKL", "x.joblib"),
    *("x.dill", "x.pt2", "x.pyc", "credentials.json", "secret-token", "checkpoint-10/model.safetensors"),
    *("runs/config.json", ".env", ".cache/tokenizer.json", "__pycache__/x.py", "run_config.json"),
    *("wandb/x_config.json", "wandb/config.json", "credentials.model", "vocab_of_secrets.json", "LICENSE_KEY"),
    *("evil.py", "deep/model.safetensors"),
)


def test_what_belongs_to_no_model_is_left_out(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    more = {"target/tokenizer.json": b"{}", "chat_template.jinja": b"x", "LICENSE": b"x", "vocab.txt": b"x"}
    pickle = {"model.bin": b"PK and a pickle"}
    folder = write(tmp_path / "model", {**checkpoint(), **more, **pickle, **dict.fromkeys(LITTER, b"1")})
    (folder / "notes.txt").symlink_to("secret-token")
    answer = worker().ok("push", folder, "org/model")
    assert without_attributes(hub.storage.contents("org/model")) == {**checkpoint(), **more}
    assert sorted(answer["left_out"]) == sorted((*LITTER, *pickle, "notes.txt"))


def test_code_is_pushed_where_the_configuration_names_it(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    named = {"AutoModel": "modeling.Model", "AutoConfig": "other--elsewhere.Config"}
    of_tokenizer = json.dumps({"auto_map": {"AutoTokenizer": ["tokens.Slow", None]}}).encode()
    code = {"modeling.py": b"from .layers import A\n", "layers.py": b"from .deeper import B\n", "deeper.py": b""}
    code |= {"tokenizer_config.json": of_tokenizer, "tokens.py": b""}
    litter = {"elsewhere.py": b"", "evil.py": b"", "src/modeling.py": b""}
    folder = write(tmp_path / "model", {**checkpoint(auto_map=named), **code, **litter})
    answer = worker().ok("push", folder, "org/model")
    assert without_attributes(hub.storage.contents("org/model")) == {**checkpoint(auto_map=named), **code}
    assert answer["left_out"] == sorted(litter)


SECRETS = {
    "config.json": (WRITE, "the access token in use"),
    "tokenizer.json": ("AKIA" + "IOSFODNN7EXAMPLA", "AWS Access Key"),
    "tokenizer_config.json": ("ghp_" + "a1B2c3D4e5F6" * 3, "GitHub Token"),
    "generation_config.json": ("hf_" + "aBcDeFgH" * 4, "Hugging Face token"),
    "README.md": ("https://me:" + "hunter22@example.org", "Basic Auth Credentials"),
    "LICENSE": ("-----BEGIN RSA " + "PRIVATE KEY-----", "Private Key"),
    "processor_config.json": ('{"wandb_api_key": "' + "0123456789abcdef" * 2 + '01234567"}', "Secret Keyword"),
    "model.safetensors": (WRITE, "the access token in use"),
}


@pytest.mark.parametrize("path", SECRETS)
def test_secrets_are_not_pushed(hub: LoopbackHub, worker: Start, tmp_path: Path, path: str) -> None:
    secret, kind = SECRETS[path]
    content = (
        safetensors(weight=secret.encode()) if path.endswith(".safetensors") else json.dumps({"x": secret}).encode()
    )
    if path == "config.json":
        content = checkpoint(hub=secret)[path]
    if path in ("README.md", "LICENSE", "processor_config.json"):
        content = secret.encode()
    folder, process = write(tmp_path / "model", {**checkpoint(), path: content}), worker()
    for dry_run in (True, False):
        answer = process("push", folder, "org/model", dry_run=dry_run)
        assert answer["error"] == "SecretError" and f"{path} ({kind})" in answer["message"], answer
        assert secret not in answer["message"] and "--allow-secrets" in answer["message"]
    assert hub.log == []
    if path == "config.json":
        assert process("push", folder, "org/model", allow_secrets=True)["error"] is None
        assert hub.storage.contents("org/model")[path] == content


@pytest.mark.parametrize("link", ["vocab.txt", "model.safetensors"])
def test_links_are_not_followed(hub: LoopbackHub, worker: Start, tmp_path: Path, link: str) -> None:
    folder = write(tmp_path / "model", {path: content for path, content in checkpoint().items() if path != link})
    (folder / link).symlink_to(write(tmp_path, {"elsewhere": safetensors(secret=b"1")}) / "elsewhere")
    answer = worker()("push", folder, "org/model")
    assert answer["error"] == "CheckpointError" and link in answer["message"] and "link" in answer["message"]
    assert hub.log == []


def test_what_was_uploaded_before_a_push_failed_is_not_uploaded_again(
    hub: LoopbackHub, worker: Start, tmp_path: Path
) -> None:
    folder, process = write(tmp_path / "model", checkpoint(b"uploaded once")), worker()
    hub.add(Fault("500", where="POST .*/commit/"))
    assert process("push", folder, "org/model")["error"] == "HubUnreachableError"
    assert sum("/v1/xorbs/" in request for request in hub.log) == 1
    hub.clear()
    assert process("push", folder, "org/model")["error"] is None
    assert not any("/v1/xorbs/" in request for request in hub.log)


def test_weights_of_an_earlier_push_do_not_outlive_it(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    sharded = {
        "model-00001-of-00002.safetensors": safetensors(a=b"1"),
        "model-00002-of-00002.safetensors": safetensors(b=b"2"),
        "model.safetensors.index.json": b"{}",
        "notes.txt": b"mine",
    }
    hub.storage.put("org/model", {**sharded, "README.md": b"mine"})
    assert worker()("push", write(tmp_path / "model", checkpoint()), "org/model")["error"] is None
    assert without_attributes(hub.storage.contents("org/model")) == {**checkpoint(), "notes.txt": b"mine"}


def test_a_missing_branch_is_created(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    before = hub.storage.put("org/model", {"notes.txt": b"main", "README.md": b"main"})
    files, process = checkpoint(), worker()
    own_card = files.pop("README.md")
    report = process.ok("push", write(tmp_path / "model", files), "org/model@v2")
    assert report["kept"] == ["notes.txt"], "a branch begins as main"
    repo = hub.storage.repo("org/model")
    assert repo["refs"]["main"] == before
    there = hub.storage.contents("org/model", "v2")
    assert set(files) <= set(there)
    assert b"org/model@v2" in there["README.md"], "the card of the main branch"
    process.ok("push", write(tmp_path / "own", {**files, "README.md": own_card}), "org/model@v2")
    process.ok("push", tmp_path / "model", "org/model@v2")
    assert hub.storage.contents("org/model", "v2")["README.md"] == own_card


def test_a_pull_request_leaves_the_branch_alone(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    before = hub.storage.put("org/model", {"notes.txt": b"main"})
    folder = write(tmp_path / "model", checkpoint())
    answer = worker(STRANGER).ok("push", folder, "org/model", create_pr=True)
    assert answer["pull_request"] == f"{hub.endpoint}/org/model/discussions/1"
    assert hub.storage.repo("org/model")["refs"]["main"] == before
    assert set(checkpoint()) <= set(hub.storage.contents("org/model", "refs/pr/1"))


def test_nothing_is_pushed_where_others_see_it_who_should_not(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    folder, process = write(tmp_path / "model", checkpoint()), worker()
    assert process("push", folder, "org/model", private=True)["error"] is None
    assert hub.storage.repo("org/model")["private"]
    assert process("push", folder, "org/model", private=True)["error"] is None
    before = hub.storage.put("org/seen", checkpoint(b"seen"))
    for repo_id, private, words in (("org/seen", True, "is public"), ("org/model", False, "is private")):
        process.refused("VisibilityError", words, "push", folder, repo_id, private=private)
    assert hub.storage.repo("org/seen")["refs"]["main"] == before


@pytest.mark.parametrize("kind", ["403", "hour", "500"])
def test_a_commit_that_cannot_be_confirmed_is_no_failure(
    hub: LoopbackHub, worker: Start, tmp_path: Path, kind: str
) -> None:
    before = hub.storage.put("org/model", checkpoint(b"old"))
    hub.add(Fault(kind, where=f"GET .*/tree/(?!{before})"))
    process = worker()
    answer = process("push", write(tmp_path / "model", checkpoint(b"new")), "org/model")
    head = hub.storage.repo("org/model")["refs"]["main"]
    assert answer["error"] is None and answer["ok"]["commit"] == head != before, answer
    assert f"commit {head} was made" in process.process.log.read_text()


def test_a_commit_with_an_unknown_outcome_is_called_so(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    hub.storage.put("org/model", checkpoint(b"old"))
    hub.add(Fault("lost", where="POST .*/commit/"))
    hub.add(Fault("403", where="GET .*/commits/"))
    folder = write(tmp_path / "model", checkpoint(b"new"))
    message = worker().refused("UnconfirmedCommitError", "may have been made or not", "push", folder, "org/model")
    assert "/commits/main" in message


def test_tokens_of_all_forms_that_a_hub_repeats_are_hidden(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    for token in ("api_org_AbCdEfGhIjKl", "hf_oauth_eyJhbGci.OiJFZERT-Ql_x", "a-mirrors-own-token"):
        hub.users[token] = User("nobody", role="read")
        hub.add(
            Fault("echo", where="POST .*/create", times=1, value=f"no rights for {token} at http://x/y?Signature=z1")
        )
        answer = worker(token)("push", write(tmp_path / "model", checkpoint()), "org/model")
        assert answer["error"] == "HubAccessError" and "no rights for ***" in answer["message"], answer
        assert token not in answer["message"] + answer["traceback"] and "z1" not in answer["message"]


def test_a_revision_that_the_hub_lists_and_does_not_give_is_not_suggested(hub: LoopbackHub, worker: Start) -> None:
    hub.storage.put("org/model", checkpoint())
    hub.add(Fault("missing", where="GET .*/tree/"))
    message = worker().refused("RevisionMissingError", "although the Hub lists it", "pull", "org/model")
    assert "did you mean" not in message


def test_a_name_without_an_owner_is_ones_own(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    answer = worker()("push", write(tmp_path / "model", checkpoint()), "model")
    assert answer["ok"]["repo_id"] == "alice/model"


def test_a_concurrent_push_is_not_overwritten(
    hub: LoopbackHub, worker: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.storage.put("org/model", checkpoint(b"old"))
    theirs = {}
    note = hub.note

    def meanwhile(request: str):  # type: ignore[no-untyped-def]
        if "/commit/" in request and not theirs:
            theirs["commit"] = hub.storage.put("org/model", {"theirs.txt": b"1"})
        return note(request)

    monkeypatch.setattr(hub, "note", meanwhile)
    folder = write(tmp_path / "model", checkpoint(b"new"))
    worker().refused("HubConflictError", "nothing was pushed", "push", folder, "org/model")
    assert hub.storage.repo("org/model")["refs"]["main"] == theirs["commit"]


@pytest.mark.parametrize(
    ("token", "repo_id", "error", "words"),
    [
        (READ, "org/model", "HubAccessError", "not allowed"),
        (STRANGER, "org/model", "HubAccessError", "not allowed"),
        ("hf_invalidInvalid", "org/model", "HubAccessError", "does not accept the token"),
        ("", "org/model", "HubAccessError", "token"),
        (READ, "org/new", "HubAccessError", "not allowed"),
        (WRITE, "org/some/model", "RepoIdError", "not the name of a repository"),
        (WRITE, "org/mo del", "RepoIdError", "not the name of a repository"),
        (WRITE, "org/model@a..b", "RepoIdError", "not a revision"),
        (WRITE, "org/data", "HubError", "dataset"),
    ],
)
def test_what_is_not_allowed_is_said_in_one_line(
    hub: LoopbackHub, worker: Start, tmp_path: Path, token: str, repo_id: str, error: str, words: str
) -> None:
    before = hub.storage.put("org/model", checkpoint(b"old"))
    hub.storage.create("org/data", kind="dataset")
    answer = worker(token)("push", write(tmp_path / "model", checkpoint()), repo_id)
    assert answer["error"] == error, answer
    assert words in answer["message"]
    assert "\n" not in answer["message"]
    assert hub.storage.repo("org/model")["refs"]["main"] == before
    assert not token or token not in answer["message"] + answer["traceback"]


@pytest.mark.parametrize(
    ("remove", "add", "error"),
    [
        (["config.json"], {}, "CheckpointError"),
        (["model.safetensors"], {"pytorch_model.bin": b"pickle"}, "UnsafeWeightsError"),
        ([], {"model.safetensors.index.json": b'{"weight_map": {"a": "gone.safetensors"}}'}, "CheckpointError"),
        (["README.md"], {"model.safetensors": safetensors(a=b"12345")[:-2]}, "CheckpointError"),
    ],
)
def test_a_damaged_folder_is_not_pushed(
    hub: LoopbackHub, worker: Start, tmp_path: Path, remove: list[str], add: dict[str, bytes], error: str
) -> None:
    files = {path: content for path, content in checkpoint().items() if path not in remove}
    answer = worker()("push", write(tmp_path / "model", {**files, **add}), "org/model")
    assert answer["error"] == error, answer
    assert hub.log == []


def test_a_dry_run_lists_and_asks_nothing(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    answer = worker()("push", write(tmp_path / "model", checkpoint()), "org/model", space=True, dry_run=True)
    assert answer["ok"]["files"] == {path: len(content) for path, content in checkpoint().items()}
    assert sorted(answer["ok"]["space_files"]) == ["README.md", "app.py", "requirements.txt"]
    assert answer["ok"]["commit"] is None
    assert hub.log == []


def test_a_token_shows_up_nowhere(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    process = worker("", HF_DEBUG="1")
    folder = write(tmp_path / "model", checkpoint())
    answer = process("push", folder, "org/model", token=WRITE)
    assert answer["error"] is None
    refused = process("push", folder, "org/model", token=READ)
    pulled = process("pull", "org/model", token=READ)
    assert pulled["error"] is None
    assert READ not in str(hub.storage.contents("org/model")) and WRITE not in str(hub.storage.contents("org/model"))
    seen = str(answer) + str(refused) + str(pulled) + process.process.log.read_text()
    assert WRITE not in seen and READ not in seen
    for file in (tmp_path / "home-0").rglob("*"):
        assert not file.is_file() or WRITE.encode() not in file.read_bytes()
    assert not hub.authorized_content


@pytest.mark.slow
def test_what_was_evaluated_is_on_the_card(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    files = checkpoint()
    del files["README.md"]
    folder = write(tmp_path / "model", files)
    bleu = {"name": "BLEU", "value": 30.0, "signature": "nrefs:1|case:mixed", "interval": [28.5, 31.5]}
    evaluation = {"task": "translation", "examples": 40, "loss": 1.5, "scores": {"bleu": bleu}, "outputs": ["Olá"]}
    keep_evaluation(folder, {**evaluation, "loss": 9.0}, "mine.tsv")
    keep_evaluation(folder, evaluation, "mine.tsv")
    keep_evaluation(folder, {**evaluation, "loss": 2.5, "scores": {}}, "other.tsv")
    assert worker()("push", folder, "org/model")["error"] is None
    pushed = hub.storage.contents("org/model")
    assert "Olá" not in pushed[EVALUATIONS_FILE].decode()
    text = pushed["README.md"].decode()
    results = ModelCard(text).data.eval_results
    assert [(result.dataset_name, result.metric_type, result.metric_value) for result in results] == [
        ("mine.tsv, 40 examples", "bleu", 30.0),
        ("mine.tsv, 40 examples", "loss", 1.5),
        ("other.tsv, 40 examples", "loss", 2.5),
    ]
    assert results[0].metric_args == {"interval_95": [28.5, 31.5]} and results[0].metric_config == "nrefs:1|case:mixed"
    assert "| translation | mine.tsv, 40 examples | BLEU | 30.0 |" in text


@pytest.mark.slow
def test_the_native_branch_stays_where_the_model_is_refused(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    zoo.build("gpt2-style@tiny", vocab_size=37, seed=0).save_pretrained(tmp_path / "model")
    process = worker()
    hub.storage.put("org/model", {"notes.txt": b"1"})
    hub.add(Fault("403", where="POST .*/commit/main"))
    assert process("push", tmp_path / "model", "org/model", native=True)["error"] == "HubAccessError"
    assert set(hub.storage.repo("org/model")["refs"]) == {"main"}
    hub.clear()
    hub.add(Fault("403", where="POST .*/commit/native"))
    answer = process("push", tmp_path / "model", "org/model", native=True)
    head = hub.storage.repo("org/model")["refs"]["main"]
    assert f"was pushed (commit {head}), its native export was not" in answer["message"]
    process.refused("RepoIdError", "native", "push", tmp_path / "model", "org/model", native=True, create_pr=True)


def test_a_space_is_written_next_to_the_model(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    files, process = checkpoint(), worker()
    for _ in range(2):  # the second time it is there
        answer = process.ok("push", write(tmp_path / "model", files), "org/model", space=True)
    assert answer["space"] == f"{hub.endpoint}/spaces/org/model"
    written = without_attributes(hub.storage.contents("spaces/org/model"))
    assert {path: len(content) for path, content in written.items()} == answer["space_files"]
    card = ModelCard(written["README.md"].decode(), ignore_metadata_errors=False).data.to_dict()
    assert (card["sdk"], card["app_file"], card["models"]) == ("gradio", "app.py", ["org/model"])
    pins = (Path(__file__).parents[2] / "constraints.txt").read_text()
    assert f"\ngradio=={card['sdk_version']}\n" in pins
    program = compile(written["app.py"], "app.py", "exec")
    assert {"build_page", "publish"} <= set(program.co_names) and "org/model" in str(program.co_consts)
    assert written["requirements.txt"].decode() == f"transformer-zoo[explore]=={zoo.__version__}\n"
    assert without_attributes(hub.storage.contents("org/model")) == files


def test_a_static_page_becomes_a_static_space(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    page = {"index.html": b"<!doctype html>", "engine/wasm/library.bin": bytes(range(256))}
    write(tmp_path / "page", {**page, ".zoo-manifest.json": b"{}"})
    arguments = (write(tmp_path / "model", checkpoint()), "org/model")
    worker().ok("push", *arguments, space=tmp_path / "page", overwrite_card=True)
    written = without_attributes(hub.storage.contents("spaces/org/model"))
    assert {path: written[path] for path in page} == page and set(written) == {*page, "README.md"}
    card = ModelCard(written["README.md"].decode(), ignore_metadata_errors=False).data.to_dict()
    assert (card["sdk"], card["app_file"], card["models"]) == ("static", "index.html", ["org/model"])
    assert b"(https://huggingface.co/spaces/org/model)" in hub.storage.contents("org/model")["README.md"]


@PAGE
@pytest.mark.slow
@pytest.mark.xdist_group("browser-page")
def test_a_static_space_runs_its_model(hub: LoopbackHub, worker: Start, tmp_path: Path) -> None:
    name = "nlpt-encoder.language"
    with static_page(name, "org/model") as page:
        answer = worker()("push", name, "org/model", space=page)
    assert answer["error"] is None, answer
    write(tmp_path / "space", without_attributes(hub.storage.contents("spaces/org/model")))
    with served(tmp_path / "space") as address:
        shown = Page(address)
        try:
            shown.wait("document.querySelector('footer')?.dataset.loaded === 'true'")
            shown.wait("!document.querySelector('[aria-busy=true]')")
            assert shown.evaluate("document.querySelector('.side h2').textContent") == "org/model"
            assert shown.evaluate("document.querySelector('output').textContent").startswith("English (")
            assert not shown.problems
        finally:
            shown.close()
