"""How many tests of transformers' own common suites the zoo's models pass, compared with transformers' own models.

    python scripts/upstream/run.py PATH/TO/transformers [VARIANT ...]

PATH is a checkout of transformers, of the version that is installed or one near it: the last lines name both. Its
suites need `pip install parameterized`. Each variant is compared with transformers' model of the same family, test by
test: a test that a variant skips counts as not passed, unless transformers' own model skips it too. BertModel is tested
as a decoder as well: a variant that is both is compared with it a second time, the decoder's outcomes standing where
the encoder's suites have no such test.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import zoo

TASKS = {"encoder": "masked-lm", "decoder": "causal-lm", "encoder-decoder": "seq2seq-lm"}
"""The task that each family is tested on."""

COLUMNS = ("passed", "failed", "skipped")

PAGE = Path(__file__).parents[2] / "docs" / "transformers.md"

CLASSES = {
    "bart": "BartModelTest",
    "bert": "BertModelTest",
    "gemma3": "Gemma3TextModelTest",
    "gpt2": "GPT2ModelTest",
    "lfm2": "Lfm2ModelTest",
    "llama": "LlamaModelTest",
    "marian": "MarianModelTest",
    "qwen3_next": "Qwen3NextModelTest",
    "t5": "T5ModelTest",
}
"""Test classes of transformers' models."""

NEAREST = {
    "gemma3-style": "gemma3",
    "kimi-linear-style": "qwen3_next",
    "lfm2-style": "lfm2",
    "qwen3-next-style": "qwen3_next",
}
"""Variants that are compared with a model nearer than their family's."""

VARIANTS = (
    "pre-norm",
    "post-norm",
    "bert-style",
    "gpt2-style",
    "llama-style",
    "gemma2-style",
    "gemma3-style",
    "qwen3-next-style",
    "kimi-linear-style",
    "lfm2-style",
    "alibi-decoder",
    "gptj-style",
    "t5-style",
    "marian-style",
    "vanilla",
    "d2l-style",
    "universal",
)
"""Suites that run by default."""

SEVERITY = ("passed", "skipped", "failed")


def run_suite(
    checkout: Path, target: str, log: Path, variant: str = "", jobs: int = 1, only: str = ""
) -> dict[str, str]:
    """Run one test class: "passed", "failed" or "skipped" by the name of the test.

    `variant` is what zoo_suites.py is to define, `only` an expression as for pytest's -k.
    """
    report = log.with_suffix(".xml")
    report.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(checkout), os.environ.get("PYTHONPATH")])),
        "ZOO_SUITE_VARIANTS": variant,
    }
    options = ["-q", "-W", "ignore", "-p", "no:cacheprovider", "--tb=short", f"--junitxml={report}"]
    if variant:  # our module must not fall under the configuration of either repository
        options += ["-c", os.devnull, f"--rootdir={Path(__file__).parent}", "--import-mode=importlib"]
    if jobs > 1:
        options += ["-n", str(jobs)]
    if only:
        options += ["-k", only]
    with log.open("w") as output:
        command = [sys.executable, "-m", "pytest", target, *options]
        finished = subprocess.run(command, cwd=checkout, env=environment, stdout=output, stderr=output, check=False)
    if not report.exists():
        print(f"pytest ended early with status {finished.returncode}: see {log}", flush=True)
        return {}
    return outcomes(report)


def outcomes(report: Path) -> dict[str, str]:
    """Outcomes by test of a report in JUnit's format, the worst one where a test has parts."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        name = case.attrib["name"]
        found[name] = max(found.get(name, "passed"), outcome, key=SEVERITY.index)
    return found


def families(variant: str) -> list[str]:
    """The families that a variant has models of: keys of `TASKS`."""
    return [family for family, task in TASKS.items() if task in zoo.describe(variant).tasks]


def references_of(variant: str, family: str) -> tuple[str, ...]:
    """The models of transformers that a variant is compared with: keys of `CLASSES`."""
    if variant in NEAREST:
        return (NEAREST[variant],)
    if family == "decoder":
        return ("llama",) if zoo.config(variant, TASKS[family]).position.startswith("rotary") else ("gpt2",)
    return {"encoder": ("bert",), "encoder-decoder": ("marian", "bart")}[family]


def row(label: str, results: dict[str, str], name: str = "", reference: dict[str, str] | None = None) -> str:
    """Counts of outcomes; with a reference, of the same tests, how many it passes, and those not passed here."""
    shared = {test: outcome for test, outcome in results.items() if reference is None or test in reference}
    counts = Counter(shared.values())
    line = f"{label:36}" + "".join(f"{counts[outcome]:>9}" for outcome in COLUMNS)
    if reference is not None:
        passed = [test for test in shared if reference[test] == "passed"]
        fewer = [test for test in passed if shared[test] != "passed"]
        line += f"{name:>12}{len(passed):>8}{len(fewer):>8}  {', '.join(fewer)}"
    return line.rstrip()


def versions(checkout: Path) -> str:
    """The zoo's commit, marked where files differ from it, and the versions of the libraries and of the suites."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    libraries = ", ".join(f"{name} {version(name)}" for name in ("transformers", "torch"))
    suites = re.search(r'version="(.*?)"', (checkout / "setup.py").read_text(encoding="utf-8"))
    own = found.stdout.strip() or version("transformer-zoo")
    return f"transformer-zoo {own}, {libraries}, suites of transformers {suites[1] if suites else 'unknown'}"


def record(file: Path, table: str) -> None:
    """Write a table to a file, and into the page where it shows the earlier one."""
    page, before = PAGE.read_text(encoding="utf-8"), file.read_text(encoding="utf-8").strip() if file.exists() else ""
    if before and before in page:
        PAGE.write_text(page.replace(before, table.strip()), encoding="utf-8")
    else:
        print(f"{PAGE} does not show {file} yet")
    file.write_text(f"{table.rstrip()}\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a checkout of transformers")
    parser.add_argument("variants", nargs="*", default=VARIANTS, help="variants of the zoo, or NAME/FAMILY")
    parser.add_argument("--references", nargs="*", choices=sorted(CLASSES), help="transformers' models to compare")
    parser.add_argument("--jobs", type=int, default=1, help="processes (needs pytest-xdist)")
    parser.add_argument("-k", dest="only", default="", help="which tests, an expression as for pytest")
    parser.add_argument("--logs", type=Path, help="folder for pytest's output, kept if given")
    parser.add_argument("--reuse", action="store_true", help="take the reports in that folder instead of running again")
    parser.add_argument("--record", type=Path, help="file to write the table to, and into the documents")
    arguments = parser.parse_args()
    table: list[str] = []

    def show(line: str) -> None:
        print(line, flush=True)
        table.append(line)

    checkout = arguments.checkout.resolve()
    logs = arguments.logs or Path(tempfile.mkdtemp())
    logs.mkdir(parents=True, exist_ok=True)
    wanted = [
        (name, family)
        for text in arguments.variants
        for name, _, only in [text.partition("/")]
        for family in ([only] if only else families(name))
    ]
    names = arguments.references or sorted({name for pair in wanted for name in references_of(*pair)})
    show(f"{'':36}" + "".join(f"{word:>9}" for word in COLUMNS) + f"{'than':>12}{'passed':>8}{'fewer':>8}")
    references: dict[str, dict[str, str]] = {}
    for name in names:
        target = f"tests/models/{name}/test_modeling_{name}.py::{CLASSES[name]}"
        report = logs / f"{name}.xml"  # of an earlier run, for transformers' own models do not change
        references[name] = (
            outcomes(report)
            if report.exists()
            else run_suite(checkout, target, report.with_suffix(".txt"), jobs=arguments.jobs, only=arguments.only)
        )
        show(row(f"transformers' {name}", references[name]))
    suites = str(Path(__file__).with_name("zoo_suites.py"))
    found: dict[str, dict[str, dict[str, str]]] = {}
    for name, family in wanted:
        log = logs / f"{name}-{family}.txt"
        earlier = log.with_suffix(".xml")
        results = (
            outcomes(earlier)
            if arguments.reuse and earlier.exists()
            else run_suite(checkout, suites, log, f"{name}/{family}", arguments.jobs, arguments.only)
        )
        found.setdefault(name, {})[family] = results
        for other in references_of(name, family):
            show(row(f"{name} ({family})", results, other, references.get(other)))
    for name, results_of in found.items():
        if "bert" in references and {"encoder", "decoder"} <= results_of.keys():
            both = {**results_of["decoder"], **results_of["encoder"]}
            show(row(f"{name} (encoder and decoder)", both, "bert", references["bert"]))
    without = f" Tests: {arguments.only}." if arguments.only else ""
    show(f"\nCounts next to a reference are of the tests that it has too.{without}\nOf {versions(checkout)}.")
    if arguments.record:
        record(arguments.record, "\n".join(table))
    if arguments.logs is None:
        print(f"Logs: {logs}")


if __name__ == "__main__":
    main()
