"""The pages of the reference, made from the source: command line, settings, gRPC, JSON.

`pages()` gives them to the docs site (scripts/docs_site.py). They are not committed. What is missing or superfluous in
the one table of settings that people write, that of docs/operators-guide.md, is an error. Metrics have a page of their
own, docs/metrics.md, which tests compare with the code.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

ROOT = Path(__file__).resolve().parents[1]
PROTO = ROOT / "proto"
GUIDE = ROOT / "docs/operators-guide.md"
FILES = (
    "job",
    "graph",
    "story",
    "failure",
    "load",
    "query",
    "checkpoint",
    "control",
    "exchange",
)  # what clients need comes first
_MADE = "*Made from the source by `scripts/reference.py`.*\n"
_SETTING = re.compile(r"^\| `(\w+\.\w+)` \| (?:`([^`]*)`)? ?\| (.*) \|$", re.MULTILINE)
_GUIDE_LINK = re.compile(r"\]\((#[^)]+)\)")
_PAGE_LINK = re.compile(r"\]\(([\w-]+\.md)")


class Incomplete(ValueError):
    """The source and what people wrote about it differ. The message says where."""


def pages() -> dict[str, str]:
    """Markdown by file name."""
    return {"cli.md": cli(), "settings.md": settings(), "grpc.md": grpc_api(), "json.md": json_api()}


def cli() -> str:
    """`--help` of every command."""
    from lockgate.cli import cli as program

    context = click.Context(program, info_name="lockgate", terminal_width=100, max_content_width=100)
    return "\n".join(["# Command line", "", _MADE, *_command(program, context, 1)])


def _command(command: click.Command, context: click.Context, depth: int) -> Iterator[str]:
    if depth > 1:
        yield f"{'#' * min(depth, 4)} {context.command_path}\n"
    yield f"```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                below = click.Context(found, info_name=name, parent=context, terminal_width=100, max_content_width=100)
                yield from _command(found, below, depth + 1)


def settings() -> str:
    """Every setting with its default, its variable and what the operators' guide says of it. Raises Incomplete."""
    from lockgate.settings import Settings

    words = guided_settings(GUIDE.read_text(encoding="utf-8"))
    lines = ["# Settings", "", _MADE]
    lines.append("Which of file, variable and option wins: [operators' guide](../operators-guide.md#settings).\n")
    known = set()
    for group, field in Settings.model_fields.items():
        kind: Any = field.annotation
        lines += [f"## {group}", "", "| key | default | variable | |", "|---|---|---|---|"]
        for key, item in kind.model_fields.items():
            name, default = f"{group}.{key}", _default(item.get_default(call_default_factory=True))
            known.add(name)
            if name not in words:
                raise Incomplete(f"{GUIDE.name} has no row for the setting {name}")
            written, text = words[name]
            if written != default:
                raise Incomplete(f"{GUIDE.name} gives {name} the default {written!r}, the code {default!r}")
            shown = f"`{default}`" if default else ""
            lines.append(f"| `{name}` | {shown} | `LOCKGATE_{group.upper()}_{key.upper()}` | {text} |")
        lines.append("")
    if gone := sorted(words.keys() - known):
        raise Incomplete(f"{GUIDE.name} has rows for settings that do not exist: {', '.join(gone)}")
    return "\n".join(lines)


def guided_settings(guide: str) -> dict[str, tuple[str, str]]:
    """Default and words by name of setting, from the table under "Settings"; links as from a folder below."""
    table = guide.partition("\n## Settings\n")[2].partition("\n## ")[0]
    return {name: (default, _linked(text)) for name, default, text in _SETTING.findall(table)}


def _linked(text: str) -> str:
    text = _PAGE_LINK.sub(r"](../\1", text)
    return _GUIDE_LINK.sub(r"](../operators-guide.md\1)", text)


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value) if value or value == 0 else ""


def grpc_api() -> str:
    """Services, messages and enums of the .proto files, with the comments there."""
    lines = ["# gRPC API", "", _MADE]
    lines.append(
        "How to call it: [the job API over gRPC](../grpc-api.md). `JobService` is for clients; the other services are "
        "for the processes of a cluster, whose messages are also what is stored.\n"
    )
    described = {file.name: file for file in _descriptors().file}
    for name in FILES:
        file = described[f"lockgate_proto/v1/{name}.proto"]
        comments = {
            tuple(place.path): " ".join((place.leading_comments or place.trailing_comments).split())
            for place in file.source_code_info.location
        }
        lines += [f"## {name}.proto", "", comments.get((12,), ""), ""]
        lines += _services(file, comments)
        for number, message in enumerate(file.message_type):
            lines += _message(message, comments, (4, number))
        for number, enum in enumerate(file.enum_type):
            lines += [f"### {enum.name}", "", _text(comments.get((5, number), "")), "", "| value | number | |"]
            lines.append("|---|---|---|")
            lines += [
                f"| `{value.name}` | {value.number} | {_text(comments.get((5, number, 2, place), ''))} |"
                for place, value in enumerate(enum.value)
            ]
            lines.append("")
    return "\n".join(lines)


def _descriptors() -> descriptor_pb2.FileDescriptorSet:
    import grpc_tools
    from grpc_tools import protoc

    common = str(Path(grpc_tools.__file__).parent / "_proto")
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "descriptors"
        files = [f"lockgate_proto/v1/{name}.proto" for name in FILES]
        options = [f"-I{PROTO}", f"-I{common}", "--include_source_info", f"--descriptor_set_out={found}", *files]
        if protoc.main(["protoc", *options]) != 0:
            raise Incomplete("protoc has refused the .proto files; it says why above")
        return descriptor_pb2.FileDescriptorSet.FromString(found.read_bytes())


def _services(file: FileDescriptorProto, comments: dict[tuple[int, ...], str]) -> Iterator[str]:
    for number, service in enumerate(file.service):
        yield from (f"### {service.name}", "", _text(comments.get((6, number), "")), "")
        yield from ("| method | takes | gives | |", "|---|---|---|---|")
        for place, method in enumerate(service.method):
            takes = _reference(method.input_type, is_many=method.client_streaming, word="stream of")
            gives = _reference(method.output_type, is_many=method.server_streaming, word="stream of")
            yield f"| `{method.name}` | {takes} | {gives} | {_text(comments.get((6, number, 2, place), ''))} |"
        yield ""


def _message(message: DescriptorProto, comments: dict[tuple[int, ...], str], path: tuple[int, ...]) -> Iterator[str]:
    yield from (f"### {message.name}", "", _text(comments.get(path, "")), "")
    if message.field:
        yield from ("| field | number | type | |", "|---|---|---|---|")
    maps = {nested.name for nested in message.nested_type if nested.options.map_entry}
    for place, item in enumerate(message.field):
        text = _text(comments.get((*path, 2, place), ""))
        if item.HasField("oneof_index") and not item.proto3_optional:
            text = f"one of `{message.oneof_decl[item.oneof_index].name}`. {text}".strip()
        yield f"| `{item.name}` | {item.number} | {_type(item, maps)} | {text} |"
    yield ""


def _type(item: FieldDescriptorProto, maps: set[str]) -> str:
    is_many = item.label == FieldDescriptorProto.LABEL_REPEATED
    if item.type_name.rpartition(".")[2] in maps:
        return "map"
    if item.type_name:
        return _reference(item.type_name, is_many=is_many, word="repeated")
    name = FieldDescriptorProto.Type.Name(item.type).removeprefix("TYPE_").lower()
    return f"repeated {name}" if is_many else f"optional {name}" if item.proto3_optional else name


def _reference(full: str, *, is_many: bool, word: str) -> str:
    name = full.rpartition(".")[2]
    linked = f"[{name}](#{name.lower()})" if full.startswith(".lockgate.") else f"`{full.lstrip('.')}`"
    return f"{word} {linked}" if is_many else linked


def json_api() -> str:
    """Paths and schemas of the OpenAPI description."""
    from lockgate_web.endpoints import endpoints
    from lockgate_web.openapi import description
    from lockgate_web.reads import Reads

    api: Any = description(endpoints(Reads("", "")))
    lines = ["# JSON API", "", _MADE]
    lines.append(
        "Who may call it, and how: [dashboard and JSON API](../dashboard.md). A coordinator gives this description, "
        "OpenAPI 3.1, at `/api/v1/openapi.json`. Refusals answer with [Error](#error).\n"
    )
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            lines += [f"## {method.upper()} {path}", "", f"{operation['summary']}. {operation['description']}", ""]
            lines += [f"- `{item['name']}` ({item['in']})" for item in operation["parameters"]]
            if "requestBody" in operation:
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                lines += [f"- body: `{name}` {_schema(item)}" for name, item in schema.get("properties", {}).items()]
            for kind, answer in operation["responses"]["200"]["content"].items():
                lines.append(f"- answers {_schema(answer['schema'])} as `{kind}`")
            lines.append("")
    for name, schema in api["components"]["schemas"].items():
        lines += [f"## {name}", ""]
        if properties := schema.get("properties"):
            lines += ["| key | |", "|---|---|", *(f"| `{key}` | {_schema(item)} |" for key, item in properties.items())]
        else:
            lines.append(_schema(schema))
        lines.append("")
    return "\n".join(lines)


def _schema(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(_schema, schema["anyOf"]))
    if "enum" in schema:
        return "one of " + ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_schema(schema.get('items', {}))}"
    if isinstance(below := schema.get("additionalProperties"), dict):
        return f"object of {_schema(below)}"
    if properties := schema.get("properties"):
        return "{" + ", ".join(f"`{key}`: {_schema(item)}" for key, item in properties.items()) + "}"
    kind = schema.get("type", "anything")
    return kind if isinstance(kind, str) else json.dumps(kind)


def _text(comment: str) -> str:
    """A comment inside a table, where it must not end the cell, nor be taken for markup."""
    return comment.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("__", "\\_\\_")


if __name__ == "__main__":
    for name, page in pages().items():
        sys.stdout.write(f"\n<!-- {name} -->\n{page}")
