"""Xet storage, as hf_xet speaks it: contents in chunks, chunks in blocks ("xorbs"), and files as lists of them.

A file is given out as a block of its own, made on demand. What is uploaded is put together from the client's blocks and
the list that follows them (a "shard").
"""

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from .messages import Answer, Request, json_answer
from .storage import Refusal, Storage

CHUNK_SIZE = 1 << 16
CHUNK = struct.Struct("<I4s")  # Version and compressed size; scheme and size
PLAIN, LZ4, GROUPED_LZ4 = range(3)

SHARD_HEADER = 48
ENTRY = struct.Struct("<32sIIII")
LAST_FILE = b"\xff" * 32
HAS_VERIFICATION, HAS_METADATA = 1 << 31, 1 << 30


def token(request: Request) -> Answer:
    """Say where the storage is, and give a token for it."""
    request.repo(write=request.groups["kind"] == "write" and "create_pr" not in request.query)
    access = {
        "X-Xet-Cas-Url": request.hub.content,
        "X-Xet-Access-Token": "xet-secret",
        "X-Xet-Token-Expiration": "9999999999",
    }
    body = {"casUrl": request.hub.content, "accessToken": "xet-secret", "exp": 9999999999}
    return json_answer(body, headers=access)


# Downloads


def reconstruction(request: Request) -> Answer:
    """Say which blocks a file is made of, and where they are."""
    name = request.groups["file"]
    size = content_path(request.storage, name).stat().st_size
    if "Range" in request.handler.headers and int(request.handler.headers["Range"].split("=")[1].split("-")[0]) >= size:
        raise Refusal(416, "beyond the end of the file")
    count = -(-size // CHUNK_SIZE)
    chunks = {"start": 0, "end": count}
    block = {
        "range": chunks,
        "url": f"{request.hub.content}/xorb/{name}?signature=secret",
        "url_range": {"start": 0, "end": size + count * CHUNK.size - 1},
    }
    terms = [{"hash": name, "unpacked_length": size, "range": chunks}]
    return json_answer({"offset_into_first_range": 0, "terms": terms, "fetch_info": {name: [block]}})


def block(request: Request) -> Answer:
    """Give out the only block of a file."""
    content = content_path(request.storage, request.groups["file"]).read_bytes()
    parts = (content[start : start + CHUNK_SIZE] for start in range(0, len(content), CHUNK_SIZE))
    headed = (CHUNK.pack(len(one) << 8, bytes([PLAIN]) + len(one).to_bytes(3, "little")) + one for one in parts)
    return Answer(206, b"".join(headed))


def content_path(storage: Storage, name: str) -> Path:
    sha256 = storage.root / "xet" / name
    if not sha256.is_file():
        raise Refusal(404, "no such file")
    return storage.root / "large" / sha256.read_text()


# Uploads


def upload_block(request: Request) -> Answer:
    (request.hub.blocks / request.groups["block"]).write_bytes(request.body)
    return json_answer({"was_inserted": True})


def upload_shard(request: Request) -> Answer:
    """Put the files together that a shard describes."""
    storage = request.storage
    for name, sha256, terms in files_of(request.body):
        content = b"".join(b"".join(chunks_of(request.hub.blocks / block)[start:end]) for block, start, end in terms)
        if hashlib.sha256(content).hexdigest() != sha256:
            raise Refusal(400, "the content does not have the checksum that was announced")
        (storage.root / "large" / sha256).write_bytes(content)
        (storage.root / "xet" / name).write_text(sha256)
    return json_answer({"type": "result"} if request.groups["version"] == "2" else {"result": 1})


def files_of(shard: bytes) -> Iterator[tuple[str, str, list[tuple[str, int, int]]]]:
    """The files of a shard: their names, sha256, and the chunks of blocks that they consist of."""
    entries = ENTRY.iter_unpack(
        shard[SHARD_HEADER : SHARD_HEADER + (len(shard) - SHARD_HEADER) // ENTRY.size * ENTRY.size]
    )
    for name, flags, count, _, _ in entries:
        if name == LAST_FILE:
            return
        parts = [next(entries) for _ in range(count)]
        for _ in range(count if flags & HAS_VERIFICATION else 0):
            next(entries)
        assert flags & HAS_METADATA, "a file without its sha256"
        sha256 = hexadecimal(next(entries)[0])
        yield hexadecimal(name), sha256, [(hexadecimal(block), start, end) for block, _, _, start, end in parts]


def chunks_of(block: Path) -> list[bytes]:
    """Read a block's chunks, up to its own table of contents."""
    if not block.is_file():
        raise Refusal(400, "a block has not been uploaded")
    data, place, chunks = block.read_bytes(), 0, []
    while place < len(data) and data[place] == 0:
        packed, rest = CHUNK.unpack_from(data, place)
        place += CHUNK.size
        scheme, size = rest[0], int.from_bytes(rest[1:], "little")
        chunks.append(unpack(data[place : place + (packed >> 8)], scheme, size))
        place += packed >> 8
    return chunks


def unpack(data: bytes, scheme: int, size: int) -> bytes:
    if scheme == PLAIN:
        return data
    plain = pa.Codec("lz4").decompress(data, size, asbytes=True)
    if scheme == LZ4:
        return plain
    # Every fourth byte, four times: lengths differ by one at most, the longer ones first.
    groups = np.array_split(np.frombuffer(plain, dtype=np.uint8), 4)
    made = np.empty(size, dtype=np.uint8)
    for place, group in enumerate(groups):
        made[place::4] = group
    return made.tobytes()


def hexadecimal(digest: bytes) -> str:
    """How Xet writes checksums: as four numbers."""
    return "".join(f"{number:016x}" for number in struct.unpack("<4Q", digest))
