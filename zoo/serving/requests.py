"""Requests and answers of OpenAI's API; requests are checked before anything is computed."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError
from transformers import PreTrainedTokenizerFast

from .text import Piece, Token, token_text


@dataclass(frozen=True)
class Form(ABC):
    """A form of answers."""

    name: ClassVar[str]  # Value of `object`
    chunk: ClassVar[str]  # Value of `object` in a stream
    prefix: ClassVar[str]  # How ids begin

    tokenizer: PreTrainedTokenizerFast
    top: int | None  # How many log-probabilities a step; None for none, not even the written token's

    @abstractmethod
    def choice(self, piece: Piece, start: int) -> dict[str, Any]:
        """Write an output."""

    @abstractmethod
    def chunks(self, piece: Piece, start: int, *, new: bool) -> Iterator[dict[str, Any]]:
        """Write a piece of a stream."""


class Completion(Form):
    """`/v1/completions`."""

    name = chunk = "text_completion"
    prefix = "cmpl"

    def choice(self, piece: Piece, start: int) -> dict[str, Any]:
        logprobs = None
        if self.top is not None:
            logprobs = {
                "tokens": [token_text(self.tokenizer, token.id) for token in piece.tokens],
                "token_logprobs": [token.log_probability for token in piece.tokens],
                "top_logprobs": [self._named(token) for token in piece.tokens],
                "text_offset": [start + token.start for token in piece.tokens],
            }
        return {"index": piece.row, "text": piece.text, "logprobs": logprobs, "finish_reason": piece.finish}

    def chunks(self, piece: Piece, start: int, *, new: bool) -> Iterator[dict[str, Any]]:
        yield self.choice(piece, start)

    def _named(self, token: Token) -> dict[str, float]:
        """The highest log-probabilities by token; ids that decode alike, as parts of letters do, as stored."""
        named: dict[str, float] = {}
        for id, value in token.top:
            name = token_text(self.tokenizer, id)
            named[self.tokenizer.convert_ids_to_tokens(id) if name in named else name] = value
        return named


class Chat(Form):
    """`/v1/chat/completions`."""

    name, chunk = "chat.completion", "chat.completion.chunk"
    prefix = "chatcmpl"

    def choice(self, piece: Piece, start: int) -> dict[str, Any]:
        return self._choice(piece, message={"role": "assistant", "content": piece.text, "refusal": None})

    def chunks(self, piece: Piece, start: int, *, new: bool) -> Iterator[dict[str, Any]]:
        """Write a piece, after the role and before the end, which come by themselves."""
        if new:
            role = {"role": "assistant", "content": "", "refusal": None}
            yield {"index": piece.row, "delta": role, "logprobs": None, "finish_reason": None}
        if piece.text or piece.tokens:
            yield self._choice(replace(piece, finish=None), delta={"content": piece.text})
        if piece.finish is not None:
            yield {"index": piece.row, "delta": {}, "logprobs": None, "finish_reason": piece.finish}

    def _choice(self, piece: Piece, **content: dict[str, Any]) -> dict[str, Any]:
        listed = [
            {**self._named(token.id, token.log_probability), "top_logprobs": [self._named(*one) for one in token.top]}
            for token in piece.tokens
        ]
        logprobs = None if self.top is None else {"content": listed, "refusal": None}
        return {"index": piece.row, **content, "logprobs": logprobs, "finish_reason": piece.finish}

    def _named(self, id: int, log_probability: float) -> dict[str, Any]:
        """A token with its log-probability and its bytes, None for a part of a letter."""
        name = token_text(self.tokenizer, id)
        return {"token": name, "logprob": log_probability, "bytes": None if "\ufffd" in name else list(name.encode())}


MAX_ROWS = 128  # How many texts one request may ask for: prompts times `n`


@dataclass
class RefusedRequestError(Exception):
    """A request that is answered by OpenAI's error object."""

    message: str
    param: str | None = None
    code: str | None = None  # OpenAI's code, if it has one
    status: int = 400  # The HTTP status
    kind: str = "invalid_request_error"  # OpenAI's type of error

    def to_dict(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


def as_prompts(value: Any) -> list[Any]:
    several = isinstance(value, list) and not all(type(one) is int for one in value)
    prompts = value if several else [value]
    lists = [one for one in prompts if not isinstance(one, str)]
    if not all(isinstance(ids, list) and all(type(one) is int and one >= 0 for one in ids) for ids in lists):
        raise ValueError("valid: a text, a list of texts, a list of token ids, or a list of lists of token ids")
    if not all(prompts) and [] in prompts:
        raise ValueError("a list is empty")
    if len(prompts) > MAX_ROWS:
        raise ValueError(f"{len(prompts)} are too many; at most {MAX_ROWS}")
    return prompts


def as_stops(value: Any) -> Any:
    return [] if value is None else [value] if isinstance(value, str) else value


Prompts = Annotated[list[str | list[int]], BeforeValidator(as_prompts)]
Stops = Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(as_stops), Field(max_length=4)]
Count = Annotated[int, Field(ge=1)]


def only_nothing(value: float | dict[str, float] | list[Any]) -> float | dict[str, float] | list[Any]:
    """Admit the value with which a field that is not supported does nothing."""
    if value:
        nothing = repr(type(value)())
        raise PydanticCustomError("not_supported", "this value is not supported; valid: {valid}", {"valid": nothing})
    return value


Zero = Annotated[float, AfterValidator(only_nothing)]


class Strict(BaseModel):
    """Data without unknown fields and conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Request(Strict):
    """Fields of all requests."""

    model: str
    user: str | None = None


class StreamOptions(Strict):
    """How to stream."""

    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class SamplingRequest(Request):
    """Common fields of completions and chats. A field that admits one value is not supported otherwise."""

    n: Annotated[int, Field(ge=1, le=MAX_ROWS)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: Stops = []
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    presence_penalty: Zero | None = None
    frequency_penalty: Zero | None = None
    logit_bias: Annotated[dict[str, float], AfterValidator(only_nothing)] | None = None


class CompletionRequest(SamplingRequest):
    """`POST /v1/completions`."""

    prompt: Prompts
    max_tokens: Count | None = None
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    best_of: Literal[1] | None = None
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None


class Text(Strict):
    """A part of a message."""

    type: Literal["text"]
    text: str


class Message(Strict):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Text]
    name: str | None = None

    def to_dict(self) -> dict[str, str]:
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        named = {} if self.name is None else {"name": self.name}
        return {"role": self.role, "content": content, **named}


class ResponseFormat(BaseModel):
    """The form of an answer."""

    type: Literal["text"]


class ChatRequest(SamplingRequest):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    store: Literal[False] | None = None
    tools: Annotated[list[Any], AfterValidator(only_nothing)] | None = None
    tool_choice: Literal["none"] | None = None


class EmbeddingRequest(Request):
    """`POST /v1/embeddings`."""

    input: Prompts
    encoding_format: Literal["float", "base64"] | None = None


R = TypeVar("R", bound=Request)


def read_request(kind: type[R], body: bytes) -> R:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        name = str(problem["loc"][0]) if problem["loc"] else None
        reason = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1:
            raise RefusedRequestError(f"{name!r} is not supported", name) from None
        where = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "literal_error":
            reason = f"this value is not supported; {reason}"
        raise RefusedRequestError(f"{where}: {reason}" if name else f"the body is not valid: {reason}", name) from None
