"""OpenAI's API for one model: completions, chats and embeddings, each also in batches, completions also as streams."""

import asyncio
import base64
import contextlib
import json
import logging
import struct
import threading
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from zoo.base.errors import ZooError

from .requests import (
    MAX_ROWS,
    Chat,
    ChatRequest,
    Completion,
    CompletionRequest,
    EmbeddingRequest,
    Form,
    R,
    RefusedRequestError,
    SamplingRequest,
    read_request,
)
from .served import Job, ServedModel
from .text import Piece

LOGGER = logging.getLogger("uvicorn.error")

MAX_BODY = 2**20  # Bytes of a request; a longer one is refused, and no more of it is kept

MAX_DISCARDED = 2**28
"""Bytes that are read and thrown away so that a client sees the refusal, before the connection is closed."""

USUAL_TOKENS = 16  # The longest completion where nothing is asked for, as OpenAI's


def build_app(served: ServedModel) -> Starlette:
    """An ASGI app with `/v1/models`, `/v1/completions`, `/v1/chat/completions` and `/v1/embeddings`."""
    card = {"id": served.names[0], "object": "model", "created": int(time.time()), "owned_by": "transformer-zoo"}

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{**card, "id": name} for name in served.names]})

    async def model(request: Request) -> Response:
        check_model(served, request.path_params["name"])
        return JSONResponse({**card, "id": request.path_params["name"]})

    async def completions(request: Request) -> Response:
        asked = await read(CompletionRequest, request, served)
        served.check_writes()
        prompts = await asyncio.to_thread(served.encode, asked.prompt, "prompt")
        room = served.room(prompts, asked.max_tokens, USUAL_TOKENS, "max_tokens")
        job = Job(prompts, max_tokens=room, top=asked.logprobs, **drawn(asked))
        return await answer(request, served, asked, job, Completion)

    async def chats(request: Request) -> Response:
        asked = await read(ChatRequest, request, served)
        served.check_writes()
        if asked.top_logprobs and not asked.logprobs:
            raise RefusedRequestError("top_logprobs needs logprobs=true", "top_logprobs")
        if None not in (asked.max_tokens, asked.max_completion_tokens):
            raise RefusedRequestError("max_tokens and max_completion_tokens are one field: give one", "max_tokens")
        prompt = await asyncio.to_thread(served.chat_ids, [message.to_dict() for message in asked.messages])
        longest = asked.max_completion_tokens or asked.max_tokens
        room = served.room([prompt], longest, None, "max_completion_tokens")
        top = (asked.top_logprobs or 0) if asked.logprobs else None
        job = Job([prompt], max_tokens=room, top=top, **drawn(asked))
        return await answer(request, served, asked, job, Chat)

    async def embeddings(request: Request) -> Response:
        asked = await read(EmbeddingRequest, request, served)
        served.check_embeds()
        if "" in asked.input:
            raise RefusedRequestError("input has an empty text, which has no embedding", "input")
        inputs = await asyncio.to_thread(served.encode, asked.input, "input")
        vectors = await asyncio.to_thread(served.embed, inputs)
        written: list[Any] = vectors
        if asked.encoding_format == "base64":  # of float32, little-endian
            written = [base64.b64encode(struct.pack(f"<{len(one)}f", *one)).decode() for one in vectors]
        data = [{"object": "embedding", "index": index, "embedding": one} for index, one in enumerate(written)]
        count = sum(map(len, inputs))
        usage = {"prompt_tokens": count, "total_tokens": count}
        return JSONResponse({"object": "list", "data": data, "model": asked.model, "usage": usage})

    routes = [
        Route("/v1/models", models),
        Route("/v1/models/{name:path}", model),
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/chat/completions", chats, methods=["POST"]),
        Route("/v1/embeddings", embeddings, methods=["POST"]),
    ]
    handlers: dict[Any, Any] = dict.fromkeys((RefusedRequestError, ZooError, HTTPException, Exception), on_error)
    return Starlette(routes=routes, exception_handlers=handlers)


def on_error(request: Request, error: Exception) -> Response:
    refusal = refusal_of(error)
    # Starlette raises what is no refusal again, and the server closes the connection.
    headers = {"Connection": "close"} if refusal.status >= 500 else None
    return JSONResponse(refusal.to_dict(), refusal.status, headers)


def refusal_of(error: Exception) -> RefusedRequestError:
    if isinstance(error, RefusedRequestError):
        return error
    if isinstance(error, HTTPException):
        return RefusedRequestError(error.detail, status=error.status_code)
    if isinstance(error, ZooError):
        return RefusedRequestError(str(error))
    return RefusedRequestError(f"the server failed: {type(error).__name__}", status=500, kind="server_error")


async def read(kind: type[R], request: Request, served: ServedModel) -> R:
    """Read a request, no more of it than `MAX_BODY`, for this model."""
    size, kept = 0, bytearray()
    async for chunk in request.stream():
        size += len(chunk)
        if size <= MAX_BODY:
            kept += chunk
        elif size > MAX_DISCARDED:
            break
        else:
            kept.clear()
    if size > MAX_BODY:
        raise RefusedRequestError(f"a request may have {MAX_BODY:,} bytes", status=413)
    asked = read_request(kind, bytes(kept))
    check_model(served, asked.model)
    return asked


def check_model(served: ServedModel, name: str) -> None:
    if name not in served.names:
        reason = f"model {name!r} does not exist; valid: {', '.join(map(repr, served.names))}"
        raise RefusedRequestError(reason, "model", "model_not_found", 404)


def drawn(asked: SamplingRequest) -> dict[str, Any]:
    """How outputs are drawn, with OpenAI's defaults."""
    return {
        "each": asked.n or 1,
        "stops": asked.stop,
        "temperature": 1.0 if asked.temperature is None else asked.temperature,
        "top_p": 1.0 if asked.top_p is None else asked.top_p,
        "seed": asked.seed,
    }


async def answer(request: Request, served: ServedModel, asked: SamplingRequest, job: Job, kind: type[Form]) -> Response:
    """Write, and answer with all at once or with a stream."""
    rows = len(job.prompts) * job.each
    if rows > MAX_ROWS:
        raise RefusedRequestError(f"{rows} outputs are asked for; at most {MAX_ROWS}", "n")
    if asked.stream_options and not asked.stream:
        raise RefusedRequestError("stream_options needs stream=true", "stream_options")
    work, form = Work(served, job), kind(served.tokenizers.target, job.top)
    head = {"id": f"{form.prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": asked.model}
    lengths = [len(served.tokenizers.source.decode(ids, skip_special_tokens=True)) for ids in job.prompts]
    starts = [length for length in lengths for _ in range(job.each)]
    if asked.stream:
        pieces = work.pieces()
        first = await anext(pieces, None)  # earlier failures are answered by a status
        usage = bool(asked.stream_options and asked.stream_options.include_usage)  # in the last piece

        async def events() -> AsyncIterator[str]:
            piece, begun = first, set()
            try:
                async with contextlib.aclosing(pieces):
                    while piece is not None:
                        new = piece.row not in begun
                        begun.add(piece.row)
                        for choice in form.chunks(piece, starts[piece.row], new=new):
                            empty = {"usage": None} if usage else {}
                            yield event({**head, "object": form.chunk, "choices": [choice], **empty})
                        piece = await anext(pieces, None)
                if usage:
                    yield event({**head, "object": form.chunk, "choices": [], "usage": work.usage()})
                yield "data: [DONE]\n\n"
            except Exception as error:
                refusal = refusal_of(error)
                yield event(refusal.to_dict())
                if refusal.status >= 500:
                    LOGGER.exception("a streamed answer failed")

        return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
    outputs: list[list[Piece]] = [[] for _ in range(rows)]
    async with contextlib.aclosing(work.pieces()) as pieces:
        async for piece in pieces:
            outputs[piece.row].append(piece)
            if await request.is_disconnected():
                return Response(status_code=499)
    choices = [form.choice(whole(output), starts[row]) for row, output in enumerate(outputs)]
    return JSONResponse({**head, "object": form.name, "choices": choices, "usage": work.usage()})


def whole(pieces: list[Piece]) -> Piece:
    tokens = tuple(token for piece in pieces for token in piece.tokens)
    return Piece(pieces[-1].row, "".join(piece.text for piece in pieces), tokens, pieces[-1].finish)


def event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False, allow_nan=False)}\n\n"


@dataclass
class Work:
    """A job in its own thread, which ends early when its pieces are no longer read."""

    served: ServedModel
    job: Job
    counts: list[int] = field(default_factory=list)

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """Write, and hand on the pieces as they come."""
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[Piece | Exception | None] = asyncio.Queue()
        stopped = threading.Event()

        def emit(item: Piece | Exception | None) -> None:
            if not stopped.is_set():
                loop.call_soon_threadsafe(queue.put_nowait, item)

        def write() -> None:
            try:
                self.counts = self.served.write(self.job, emit, stopped.is_set)
                emit(None)
            except Exception as error:
                emit(error)

        threading.Thread(target=write, daemon=True).start()
        try:
            while (item := await queue.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            stopped.set()

    def usage(self) -> dict[str, int]:
        read, written = sum(map(len, self.job.prompts)), sum(self.counts)
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
