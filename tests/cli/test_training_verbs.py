"""Training, evaluation and generation on the command line, and data that cannot be used."""

import json
import re
import shutil

import pytest
from click.testing import CliRunner
from command_line import run as command
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import zoo as library
from zoo.cli.generate import generate as generate_verb
from zoo.cli.parameters import read_lines
from zoo.data.tasks import TASKS

SETTINGS = ("hidden_size=16", "num_hidden_layers=1", "num_attention_heads=2", "intermediate_size=32")
MODEL = [part for setting in SETTINGS for part in ("--set", setting)]
FLAGS = ["--max_steps", "3", "--per-device-train-batch-size", "8"]
FLAGS += ["--training", "use_cpu=True", "--training", "warmup_steps=1"]
TRAIN = ["pre-norm", "--tokenizer", "word", *MODEL, *FLAGS, "--quiet", "--json"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    pairs = TASKS.get("translation").load().train
    rows = [f"{english}\t{portuguese}\n" for english, portuguese in zip(pairs["en"], pairs["pt"], strict=True)]
    (folder / "train.tsv").write_text("".join(["en\tpt\n", *rows[:32]]))
    (folder / "heldout.tsv").write_text("".join(["en\tpt\n", *rows[32:40]]))
    return folder


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "model"
    run = command("train", *TRAIN, "--data", data, "-o", folder)
    assert run.exit_code == 0, run.stderr
    return folder, json.loads(run.stdout)


def test_the_data_are_shown_before_training(zoo, tmp_path):
    rows = [(("pos", "neg")[i % 3 == 0], " ".join([f"film{i}", *["fine"] * (i % 9)])) for i in range(40)]
    data = tmp_path / "a.tsv"
    data.write_text("".join("\t".join(row) + "\n" for row in [("label", "text_a"), *rows]))
    train = ("train", "pre-norm", "--task", "text-classification", "--data", str(data), *MODEL, *FLAGS, "--json")
    run = zoo(*train, "-o", tmp_path / "model")
    assert run.exit_code == 0, run.stderr
    json.loads(run.stdout)
    assert run.stderr.startswith(f"Columns of {data}: text_a, label\n  film0 | neg\n  film1 fine | pos\n  film2")
    labels = r"^Labels: pos 2\d, neg 1\d\nTokens: [\d,]+, in 38 examples to train on and 2 held out:\n"
    assert re.search(labels, run.stderr, re.MULTILINE)
    bars = re.findall(r"^ +\d+ to \d+ +(\d+) #+$", run.stderr, re.MULTILINE)
    assert sum(map(int, bars)) == 38 and zoo(*train, "-o", tmp_path / "quiet", "--quiet").stderr == ""


def test_a_text_is_counted_in_blocks_as_a_comparison_counts_it(zoo, tmp_path):
    (tmp_path / "a.txt").write_text("To be or not to be, that is the question.\n" * 40)
    task = ("--task", "language-modeling:block_size=32", "--tokenizer", "character", "--data", str(tmp_path / "a.txt"))
    run = zoo("train", "gpt2-style", *task, *MODEL, *FLAGS, "--quiet", "-o", tmp_path / "model")
    report = json.loads((tmp_path / "model" / "result.json").read_text())["report"]
    assert report["train_examples"] > 40
    assert f"{report['train_examples']} examples, {report['heldout_examples']} held out" in run.stdout


def test_what_is_trained_is_loaded_by_the_auto_classes(trained):
    folder, report = trained
    assert report["path"] == str(folder.resolve())
    assert (report["steps"], report["train_examples"], report["heldout_examples"]) == (3, 32, 8)
    assert len(AutoTokenizer.from_pretrained(folder)) == AutoModelForSeq2SeqLM.from_pretrained(folder).config.vocab_size


def test_an_evaluation_agrees_with_the_report_of_the_training(zoo, trained, data, tmp_path):
    folder, report = trained
    outputs = tmp_path / "outputs.txt"
    options = ("--n-bootstrap", "50", "--outputs", str(outputs), "--save")
    run = zoo("evaluate", folder, *options, "--json")
    assert run.exit_code == 0, run.stderr
    found = json.loads(run.stdout)
    assert run.stderr == "" and found["loss"] == report["heldout_loss"]
    assert found["examples"] == len(outputs.read_text().splitlines()) == 8
    assert found["scores"]["chrf"]["value"] == report["scores"]["chrf"]["value"]
    low, high = found["scores"]["chrf"]["interval"]
    assert low <= found["scores"]["chrf"]["value"] <= high and "|bs:50|" in found["scores"]["bleu"]["signature"]
    (saved,) = json.loads((folder / "evaluations.json").read_text())["evaluations"]
    assert (saved["data"], saved["loss"], saved["scores"]) == (data.name, found["loss"], found["scores"])
    changed = ("--engine", "torch-int8", "--generation", "num_beams=1")
    run = zoo("evaluate", folder, "--n-bootstrap", "1", *changed, "--save", "--quiet")
    assert run.exit_code == 0, run.stderr
    kept = json.loads((folder / "evaluations.json").read_text())["evaluations"]
    assert [one["data"] for one in kept] == [data.name, f"{data.name}, engine=torch-int8, num_beams=1"]
    assert kept[0] == saved and kept[1]["loss"] != saved["loss"], "rounded weights are another model"
    for other in (("--data", str(data)), ("--heldout", str(data / "heldout.tsv"))):
        again = json.loads(zoo("evaluate", folder, *other, "--n-bootstrap", "1", "--quiet", "--json").stdout)
        assert (again["loss"], again["repeats_training"]) == (found["loss"], False)


@pytest.mark.parametrize(
    ("spoil", "useful"),
    [
        (lambda folder, data: (data / "heldout.tsv").unlink(), "cannot be read again"),
        (lambda folder, data: (data / "heldout.tsv").write_text("en\tpt\nHi.\tOi.\n"), "has changed"),
        (lambda folder, data: (folder / "result.json").unlink(), "has no record of its training data"),
    ],
)
def test_a_model_is_scored_on_no_other_data_than_its_own_without_a_word(zoo, trained, data, tmp_path, spoil, useful):
    folder, moved = tmp_path / "model", tmp_path / "data"
    shutil.copytree(trained[0], folder)
    shutil.copytree(data, moved)
    result = (folder / "result.json").read_text()
    (folder / "result.json").write_text(result.replace(json.dumps(str(data)), json.dumps(str(moved))))
    spoil(folder, moved)
    run = zoo("evaluate", folder, "--quiet")
    assert run.exit_code == 2 and useful in run.stderr and "--heldout FILE" in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


def test_an_evaluation_is_printed_as_a_table(zoo, trained, data):
    run = zoo("evaluate", trained[0], "--data", data / "train.tsv", "--n-bootstrap", "10", columns=100)
    assert run.exit_code == 0, run.stderr
    assert "Perplexity" in run.stdout and "32 examples" in run.stdout


def test_texts_come_from_arguments_a_file_or_standard_input(zoo, trained, tmp_path):
    folder, texts = str(trained[0]), ("The dog is here.", "Is the water hot?")
    limits = ("--max-new-tokens", "4")
    from_arguments = zoo("generate", folder, *texts, *limits)
    assert from_arguments.exit_code == 0, from_arguments.stderr
    assert len(from_arguments.stdout.splitlines()) == 2
    file = tmp_path / "texts.txt"
    file.write_text("\n".join((texts[0], "", texts[1])))
    lines = zoo("generate", folder, "--file", file, *limits).stdout.splitlines()
    assert [lines[0], lines[2]] == from_arguments.stdout.splitlines() and lines[1] == ""
    piped = CliRunner().invoke(generate_verb, [folder, *limits], input="\n".join(texts))
    assert piped.stdout == from_arguments.stdout
    expected = library.generate(folder, texts, max_new_tokens=4)
    assert [one.text for one in expected] == from_arguments.stdout.splitlines()


def test_a_line_of_a_file_ends_where_editors_end_it(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_bytes("one\u2028still one\r\n\ntwo\x0cstill two\rthree\n".encode())
    assert read_lines((), file) == ["one\u2028still one", "", "two\x0cstill two", "three"]


def test_several_outputs_come_with_scores(zoo, trained):
    flags = ("--num-beams", "3", "--num_return_sequences", "2", "--max-new-tokens", "4")
    run = zoo("generate", trained[0], "The dog is here.", *flags)
    assert run.exit_code == 0, run.stderr
    scores = [float(line.split("\t")[0]) for line in run.stdout.splitlines()]
    assert len(scores) == 2 and 0 > scores[0] >= scores[1]
    (found,) = json.loads(zoo("generate", trained[0], "The dog is here.", *flags, "--json").stdout)
    assert [round(candidate["score"], 4) for candidate in found["candidates"]] == scores
    assert found["prompt"] == "The dog is here."


@pytest.mark.parametrize(
    ("arguments", "useful"),
    [
        (("generate", "MODEL", "Hi.", "--temperature", "0.5"), "do_sample"),
        (("generate", "MODEL", "Hi.", "--generation", "num_beam=2"), "did you mean 'num_beams'?"),
        (("evaluate", "MODEL", "--report", "wrong"), "an error report needs labels, and translation has none"),
        (("evaluate", "MODEL", "--data", "a.tsv", "--heldout", "b.tsv"), "data and heldout are both given"),
        (("generate", "MODEL", "Hi.", "--generation", "num_beams=0"), "num_beams=0 is not valid; valid: 1 and more"),
        (("generate", "MODEL", "Hi.", "--do_sample", "--temperature", "-1"), "`temperature` (=-1.0) has to be"),
        (("generate", "MODEL", "Hi.", "--seed", "1"), "--seed 1 changes nothing without sampling"),
        (("generate", "MODEL", "Hi.", "--device", "cpuu"), "did you mean 'cpu'?"),
        (("generate", "nowhere", "Hi."), "'nowhere' is no folder, file or name of weights"),
        (("evaluate", "MODEL", "--task", "translatoin"), "did you mean 'translation'?"),
        (("evaluate", "MODEL", "--data", "nowhere.tsv"), "nowhere.tsv does not exist"),
        (("evaluate", "MODEL", "--generation", "num_beam=2"), "did you mean 'num_beams'?"),
        (("train", "pre-nrm", "--quiet", "-o", "elsewhere"), "did you mean 'pre-norm'?"),
        (("train", "pre-norm", "--quiet", "-o", "MODEL"), "--force"),
        (("train", "pre-norm", "--training", "seed=3"), "give --seed 3"),
        (("train", "pre-norm", "--learning_rate", "nan"), "learning_rate=nan is not valid; valid: 0 and more"),
        (("train", "pre-norm", "--gradient_accumulation_steps", "0"), "valid: 1 and more"),
        (("compare", "pre-norm", "--seed", "-1"), "seed=-1 is not valid; valid: 0 to 4294967295"),
        (("compare", "pre-norm", "--sweep", "learning_rate=0.1,nan"), "learning_rate='nan' is not valid"),
        (("train", "pre-norm", "--z-loss", "1", "--training", "z_loss=2"), "z_loss=1.0 and z_loss=2 were given"),
        (("train", "pre-norm", "--parametrization", "mup", "--set", "parametrization=standard"), "give one of both"),
        (("train", "pre-norm", "--set", "hidden_size=16", "--set", "hidden_size=32"), "give one of both"),
        (("generate", "MODEL", "Hi.", "--num-beams", "2", "--generation", "num_beams=3"), "give one of both"),
        (("generate", "MODEL", "Hi.", "--file", "MODEL/config.json"), "give TEXT or --file, not both"),
        (("predict", "vanilla.language", "Hi.", "-f", "MODEL/config.json"), "give TEXT or --file, not both"),
        (("show", "pre-norm", "--code", "--svg", "x.svg"), "--svg takes no --code"),
        (("show", "vanilla.en-pt", "--svg", "x.svg"), "vanilla.en-pt is a name of weights, which take no --svg"),
        (("data", "list", "books", "--prepared"), "--prepared takes no [PATTERN]"),
        (("plan", "pre-norm", "--markdown", "--json"), "--markdown takes no --json"),
        (("build", "pre-norm@tiny", "-o", "MODEL-x", "--set", "seed=3"), "--set takes fields of the configuration"),
        (("summary", "MODEL", "--task", "masked-lm"), "--task is what a variant is built for"),
        (("bench", "show", "length", "--json", "--score", "x"), "--json takes no --score"),
        (("weights", "list", "--markdown", "--json"), "--markdown takes no --json"),
        (("explore", "--static", "-o", "MODEL-x", "--port", "8000"), "--static takes no --port"),
        (("train", "pre-norm", "--training", "progress=False"), "see zoo train --help"),
        (("compare", "pre-norm", "--training", "output_dir=elsewhere"), "give --output elsewhere"),
    ],
)
def test_mistakes_are_one_line(zoo, trained, arguments, useful):
    run = zoo(*(part.replace("MODEL", str(trained[0])) for part in arguments))
    assert run.exit_code == 2 and useful in run.stderr and len(run.stderr.strip().splitlines()) == 1


PAIRS = "en\tpt\nHello.\tOlá.\n"
LABELLED = "text\tlabel\ngood\tpos\nbad\tneg\n"
TRANSLATION, CLASSIFICATION = ("pre-norm",), ("pre-norm", "--task", "text-classification")
LANGUAGE = ("gpt2-style", "--task", "language-modeling")


@pytest.mark.parametrize(
    ("arguments", "files", "message"),
    [
        (TRANSLATION, {"a.tsv": ""}, "a.tsv is empty"),
        (LANGUAGE, {"a.txt": ""}, "a.txt is empty"),
        (TRANSLATION, {"a.tsv": "en\nHello.\n"}, "a.tsv, line 1: 1 column where 2 are expected"),
        ((*TRANSLATION, "--columns", "en,pr"), {"a.tsv": PAIRS}, "unknown column 'pr' of DIR/a.tsv; valid: en, pt"),
        (TRANSLATION, {"a.tsv": f"{PAIRS}Bye.\n"}, "a.tsv, line 3: 1 field where 2 are expected"),
        (TRANSLATION, {"a.csv": "en,pt\nHello.,Olá.\nBye.\n"}, "a.csv, line 3: 1 field where 2 are expected"),
        (TRANSLATION, {"a.tsv": PAIRS.encode() + b"Bye.\tAt\xe9.\n"}, "a.tsv, line 3: not valid UTF-8 at byte 7"),
        (LANGUAGE, {"a.txt": b"To be\nor not \xff"}, "a.txt, line 2: not valid UTF-8 at byte 7"),
        (TRANSLATION, {"a.tsv": f"{PAIRS}a\t{'b' * 10_000_000}\n"}, "a.tsv, line 3: 10000003 bytes long"),
        (LANGUAGE, {"a.txt": f"To be\n{'b' * 10_000_000}\n"}, "a.txt, line 2: 10000001 bytes long"),
        (
            CLASSIFICATION,
            {"train.tsv": LABELLED, "validation.tsv": f"{LABELLED}so so\tmixed\n"},
            "validation.tsv, line 4: label 'mixed' is not in DIR/train.tsv; valid: neg, pos",
        ),
        (
            ("pre-norm", "--task", "translation:max_length=2"),
            {"train.tsv": PAIRS * 2, "dev.tsv": PAIRS.replace("Hello", "Good day")},
            "train.tsv: all 3 examples have more than max_length=2 tokens; the shortest has",
        ),
        (TRANSLATION, {"a.tsv": f"{PAIRS}Bye.\t\n"}, "a.tsv, line 3: column 'pt' is empty"),
        (TRANSLATION, {"a.jsonl": '{"en": "Bye.", "pt": ""}\n'}, "a.jsonl, line 1: column 'pt' is empty"),
    ],
)
def test_mistakes_in_data_are_one_line(zoo, tmp_path, arguments, files, message):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    data = tmp_path / next(iter(files)) if len(files) == 1 else tmp_path
    run = zoo("train", *arguments, "--data", data, "-o", tmp_path / "model", "--quiet")
    assert run.exit_code == 2 and message.replace("DIR", str(tmp_path)) in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1 and not (tmp_path / "model").exists()
