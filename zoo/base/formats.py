"""Versions of the formats that the zoo writes. Newer versions than these are refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from zoo.base.errors import FormatVersionError

DISTRIBUTION = "transformer-zoo"


@dataclass(frozen=True)
class Format:
    """A kind of file, or of entry points, with a version."""

    name: str  # Name in messages
    place: str  # Name of the file, or of the group of entry points
    version: int = 1  # The version that is written, the newest that is read
    oldest: int = 1  # The oldest version that is read
    key: str = "format"  # Key of the version in the file
    unstamped: int | None = 1  # Version of a file without the key; None where every version writes it

    @property
    def stamp(self) -> dict[str, int]:
        """The version as an entry of a file."""
        return {self.key: self.version}

    def check(self, content: Mapping[str, Any], where: object, written_by: object = None) -> None:
        """Raise FormatVersionError for a version that is not read, with the command that installs a zoo that does."""
        found = content.get(self.key, self.unstamped)
        if isinstance(found, int) and self.oldest <= found <= self.version:
            return
        versions = str(self.version) if self.oldest == self.version else f"{self.oldest} to {self.version}"
        what = f"{where} is {self.name} of format {found!r}, and {this_zoo()} reads format {versions}"
        if isinstance(found, int) and found < self.oldest:
            raise FormatVersionError(f"{what}; it was written by an older version: write it again")
        raise FormatVersionError(f"{what}; {upgrade(written_by)}")


CONFIGURATION = Format("a configuration", "config.json", key="zoo_format")
WRITTEN_BY = "zoo_version"  # Key of the zoo's version in a configuration
RESULTS = Format("results of a comparison", "results.json", version=2, oldest=2, unstamped=None)
PLAN = Format("the plan of a comparison", "comparison.json", unstamped=None)
ROWS = Format("a record of runs", "zoo/comparison/benchmarks/results/*.csv")
MANIFEST = Format("a manifest", ".zoo-manifest.json")
SHARDS = Format("a folder of token shards", "zoo-shards.json", unstamped=None)
BUNDLE = Format("a bundle", "bundle.json")
PLUGINS = Format("a plugin", "zoo.plugins")

FORMATS = (CONFIGURATION, RESULTS, PLAN, ROWS, MANIFEST, SHARDS, BUNDLE, PLUGINS)  # All formats with versions


def installed_version(distribution: str) -> str | None:
    """The version of a distribution, None where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


@cache
def zoo_version() -> str | None:
    """The installed version of the zoo; None in a bundle on a machine without it."""
    return installed_version(DISTRIBUTION)


def this_zoo() -> str:
    """Name of the installed zoo in messages."""
    return " ".join(filter(None, (DISTRIBUTION, zoo_version())))


def upgrade(written_by: object = None) -> str:
    """The command that installs a version that reads what `written_by` wrote."""
    wanted = f"'{DISTRIBUTION}>={written_by}'" if is_newer(written_by) else DISTRIBUTION
    return f"install a newer version: pip install --upgrade {wanted}"


def is_newer(written_by: object) -> bool:
    """Whether a version, as a file names it, is one after the installed one."""
    from packaging.version import InvalidVersion, Version

    own = zoo_version()
    try:
        return own is not None and isinstance(written_by, str) and Version(written_by) > Version(own)
    except InvalidVersion:
        return False
