"""The OpenAPI description of the JSON API, made from its table. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lockgate.json_shapes import Json
from lockgate_web.endpoints import Endpoint
from lockgate_web.schemas import SCHEMAS, named

_REFUSALS = {
    "400": "the request is invalid",
    "401": "the caller is unknown",
    "403": "the caller lacks the role, or it is a page of another site",
    "404": "there is no such job",
    "409": "the state of the job does not allow it",
    "503": "there is no leader at the moment, or the dashboard is overloaded",
}


def description(table: Iterable[Endpoint]) -> Json:
    """OpenAPI 3.1."""
    paths: dict[str, Json] = {}
    for endpoint in table:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lockgate",
            "version": "1",
            "description": "Jobs of a cluster as JSON, read and controlled through any of its coordinators.",
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token or JWT of the cluster. On its own machine the cluster's user needs none.",
                }
            },
        },
    }


def _operation(endpoint: Endpoint) -> Json:
    kind = "text/event-stream" if endpoint.is_stream else "application/json"
    operation: Json = {
        "summary": endpoint.summary,
        "description": f"Needs the role {endpoint.role.value}." if endpoint.role else "Needs no role.",
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"{(\w+)}", endpoint.path)
        ]
        + [{"name": name, "in": "query", "schema": schema} for name, schema in endpoint.query.items()],
        "responses": {
            "200": {"description": endpoint.summary, "content": {kind: {"schema": endpoint.answer}}},
            **{
                status: {"description": text, "content": {"application/json": {"schema": named("Error")}}}
                for status, text in _REFUSALS.items()
            },
        },
    }
    if endpoint.body is not None:
        schema = endpoint.body.model_json_schema()
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation
