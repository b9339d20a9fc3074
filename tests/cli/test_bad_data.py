"""Data that cannot be used: `zoo train` says in one line what is wrong, in which file, and on which line."""

import pytest

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
    run = zoo("train", *arguments, "--data", str(data), "-o", str(tmp_path / "model"), "--quiet")
    assert run.exit_code == 2 and message.replace("DIR", str(tmp_path)) in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1 and not (tmp_path / "model").exists()
