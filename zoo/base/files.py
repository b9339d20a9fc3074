"""Files that are written whole or not at all, and errors of full or read-only disks."""

from __future__ import annotations

import errno
import json
import os
import re
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from zoo.base.errors import CheckpointError, OutputExistsError, UnwritableError, ZooError

LONGEST_NAME = 255  # Bytes of the longest name of a file


def read_json(file: Path) -> Any:
    """Read a JSON file from an untrusted source."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_object(file: Path) -> dict[str, Any]:
    """Read an object from a JSON file, or raise CheckpointError."""
    try:
        return {**read_json(file)}
    except (OSError, TypeError, ValueError) as error:
        raise CheckpointError(f"{file} is not valid JSON of an object, or cannot be read: {error}") from error


def read_mapping(file: Path) -> dict[str, Any]:
    """Read an object from a JSON file; an empty one where there is none, or none that can be read."""
    try:
        content = read_json(file)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def stamp_of(file: str | Path) -> list[int]:
    """Size and time of change of a file, which differ once it was written to."""
    found = os.stat(file)
    return [found.st_size, found.st_mtime_ns]


def home_cache() -> Path | None:
    """The user's folder for what can be made again; None in containers where the user has no account."""
    home = os.path.expanduser("~")
    return None if home == "~" else Path(home, ".cache")


def expanded(path: str | Path) -> Path:
    """A path with "~" as the user's home; as it is where there is none, for which `Path.expanduser` fails."""
    return Path(os.path.expanduser(path))


def leaves_its_folder(name: str) -> bool:
    """Whether a file's name, put after a folder's, leads elsewhere on any system, as `../x` and `C:x` do."""
    return any(
        bool(path.drive or path.root) or ".." in path.parts for path in (PurePosixPath(name), PureWindowsPath(name))
    )


JOIN = "+"  # Separator of joined corpora, and of the sources of a mixture
SOURCE = re.compile(r"(.+?)=(\d*\.?\d+)(?:\+|$)")  # A source of a mixture and its share


def mixed_sources(data: str) -> list[tuple[str, str]]:
    """Sources and shares of a mixture "NAME=SHARE+NAME=SHARE"; none of anything else."""
    found: list[tuple[str, str]] = SOURCE.findall(data)
    return found if JOIN.join(map("=".join, found)) == data else []


def without_folders(data: str) -> str:
    """Strip local folders from the name of data; names of mixed data keep their shares, those on the Hub stay."""
    if parts := mixed_sources(data):
        return JOIN.join(f"{without_folders(name)}={share}" for name, share in parts)
    if Path(data).is_absolute():
        return Path(data).name
    scheme, colon, place = data.partition(":")
    return f"{scheme}:{Path(place).name}" if colon and Path(place).is_absolute() else data


def files_in_index(index: Path) -> list[str]:
    """Read which files a checkpoint's weights are in."""
    try:
        content = read_json(index)
        names = sorted(set(content["weight_map"].values()))
        if not isinstance(content["metadata"], dict):
            raise TypeError("its metadata are no object")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{index} is not a valid index of weight files: {error}") from error
    if not names:
        raise CheckpointError(f"{index} names no files, so it has no weights")
    for name in names:
        is_name = isinstance(name, str) and name and PureWindowsPath(name).name == name and not leaves_its_folder(name)
        if not is_name or len(name.encode(errors="replace")) > LONGEST_NAME:
            shown = textwrap.shorten(repr(name), LONGEST_NAME)
            raise CheckpointError(f"{index} names {shown}, which is not a file of its own folder")
    return names


def write_file(file: Path, content: str | bytes) -> None:
    """Write a file under a temporary name next to it, and rename it on success."""
    if file.is_dir():
        raise OutputExistsError(f"{str(file)!r} is a folder; name a file")
    with written(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        try:
            with open(descriptor, "wb") as stream:
                stream.write(content if isinstance(content, bytes) else content.encode())
            os.chmod(temporary, 0o644)
            os.replace(temporary, file)
        except BaseException:
            os.unlink(temporary)
            raise


def write_json(file: Path, value: Any, indent: int | None = 2) -> Path:
    write_file(file, json.dumps(value, indent=indent, ensure_ascii=False) + "\n")
    return file


def replace_part(page: str, command: str, text: str) -> str:
    """Put a text into a page in place of the one that its comments enclose."""
    before, end = f"<!-- {command} -->\n", "<!-- end -->"
    pattern = re.compile(f"(?<={re.escape(before)}).*?(?={end})", re.DOTALL)
    changed, places = pattern.subn(lambda _: text, page, count=1)
    if not places:
        raise ValueError(f"the page has no part between {before.strip()} and {end}")
    return changed


@contextmanager
def written(place: Path) -> Iterator[None]:
    """Say in one line why something could not be written."""
    from safetensors import SafetensorError

    try:
        yield
    except ZooError:
        raise
    except (OSError, SafetensorError) as error:
        # Errors of a network are OSErrors too, without a number.
        if isinstance(error, OSError) and error.errno is None:
            raise
        raise UnwritableError(f"{place} cannot be written: {getattr(error, 'strerror', None) or error}") from error


def check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written, before anything is computed that should go there."""
    try:
        str(folder.resolve()).encode()
    except UnicodeEncodeError:
        raise UnwritableError(f"{str(folder)!r} has a name that is no UTF-8; name another folder") from None
    place = folder.absolute()
    while not place.exists() and place != place.parent:  # as of a drive that is not there
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK):
        read_only = hasattr(os, "statvfs") and bool(os.statvfs(place).f_flag & os.ST_RDONLY)
        reason = os.strerror(errno.EROFS if read_only else errno.EACCES)
        raise UnwritableError(
            f"{folder} cannot be written: {reason}" + ("" if place == folder.absolute() else f" ({place})")
        )
