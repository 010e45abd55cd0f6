"""A request of the JSON API, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from lockgate_common.http.refusal import HttpRefusal
from lockgate_common.json_input import parse_json
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lockgate_web.clients import HeldClient
from lockgate_web.entrance import Visitor

B = TypeVar("B", bound="Body")


class Body(BaseModel):
    """The JSON object of a request; no other keys are allowed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Nothing(Body):
    """An empty object."""


class SavepointBody(Body):
    """request_id: the same one again is the same savepoint; timeout_ms: 0 means the job's checkpoint timeout."""

    timeout_ms: int = Field(default=0, ge=0, le=86_400_000)
    request_id: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,128}$")


class StopBody(Body):
    """drain: what sources have read is processed first; timeout_ms: 0 means the job's checkpoint timeout."""

    drain: bool = False
    timeout_ms: int = Field(default=0, ge=0, le=86_400_000)


class RescaleBody(Body):
    """parallelism: by vertex id."""

    parallelism: dict[str, int] = Field(min_length=1, max_length=1_000)
    timeout_ms: int = Field(default=0, ge=0, le=86_400_000)


class LoginBody(Body):
    """token: a token or JWT of the cluster."""

    token: str = Field(min_length=1, max_length=8_000)


@dataclass(frozen=True, slots=True)
class Asked:
    """held: asks the cluster for this visitor; path, query: parameters by name."""

    visitor: Visitor
    held: HeldClient
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any = None

    @property
    def key(self) -> str:
        """Of the job."""
        return self.path["key"]

    def id(self, kind: str) -> int:
        """The number in the path. kind: what it names. Raises HttpRefusal."""
        text = self.path["id"]
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise HttpRefusal(400, f"{text[:100]!a} is not the id of a {kind}")
        return int(text)

    def number(self, name: str) -> int:
        """A query parameter; 0 for none. Raises HttpRefusal."""
        text = self.query.get(name, "0")
        if not (text.isascii() and text.isdecimal() and len(text) < 10):
            raise HttpRefusal(400, f"{name} is {text[:100]!a}; give a whole number")
        return int(text)


def read_body(kind: type[B], content: bytes) -> B:
    """Raises HttpRefusal that names the first mistake."""
    try:
        return kind.model_validate(parse_json(content or b"{}"))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the body"
        raise HttpRefusal(400, f"{place[:200]}: {first['msg'][:1].lower()}{first['msg'][1:]}") from error
    except ValueError as error:
        raise HttpRefusal(400, f"the body cannot be read: {error}") from error
