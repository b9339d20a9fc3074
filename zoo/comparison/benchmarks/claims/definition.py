"""Claims: sentences of papers, with the comparisons that could refute them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from zoo.base.errors import ConfigError

from ..definition import Benchmark, benchmarks
from .contrast import Contrast, entries, made, read_contrast

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Claim:
    """What a paper claims of a variant or a part.

    Attributes:
        claim: The claim, as a sentence.
        source: Who claims it, and where.
        about: Names of variants, and settings such as "norm=dyt".
        tests: What must come out if it holds here, all of it; each could refute it.
        name: Its name.
        theme: What it belongs to: the name of its file.
    """

    claim: str
    source: str
    about: Sequence[str]
    tests: Sequence[Contrast]
    name: str = ""
    theme: str = ""


def read_claims(folder: Path = FOLDER, known: Mapping[str, Benchmark] | None = None) -> list[Claim]:
    """Read all claims.

    Args:
        folder: A folder of YAML files, one a theme, which name claims; by default those that ship.
        known: The benchmarks that they may be about, by default those that ship.

    Raises:
        ZooError: When something is missing, unknown, or says nothing.
    """
    known = benchmarks() if known is None else known
    found: dict[str, Claim] = {}
    for file in sorted(folder.glob("*.yaml")):
        for name, said in entries(file).items():
            if name in found:
                raise ConfigError(f"{file}: the claim {name!r} stands in {found[name].theme}.yaml, too")
            found[name] = read_claim(file, name, said, known)
    return list(found.values())


def read_claim(file: Path, name: str, said: object, known: Mapping[str, Benchmark]) -> Claim:
    """Read one claim."""
    where = f"{file}, {name}"
    claim = made(Claim, said, where)
    if not (isinstance(claim.tests, list) and claim.tests and isinstance(claim.about, list) and claim.about):
        raise ConfigError(f"{where}: about and tests are lists, of which neither may be empty")
    tests = [read_contrast(one, f"{where}, test {number}", known) for number, one in enumerate(claim.tests, 1)]
    return replace(claim, tests=tests, name=name, theme=file.stem)
