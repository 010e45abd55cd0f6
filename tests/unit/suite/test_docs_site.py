"""The docs site: strict, complete, and with nothing from other hosts."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

pytestmark = pytest.mark.spark  # mkdocs is not in the environment of `make test-quick`

ROOT = Path(__file__).resolve().parents[3]
FOREIGN = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


@pytest.fixture(scope="module", autouse=True)
def _scripts() -> Iterator[None]:
    sys.path.insert(0, str(ROOT / "scripts"))
    yield
    sys.path.remove(str(ROOT / "scripts"))


def build(target: Path, **changes: Any) -> None:
    """Builds the site. Raises mkdocs.exceptions.Abort where a link or anchor leads nowhere."""
    from mkdocs.commands.build import build as build_site
    from mkdocs.config import load_config

    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(target), **changes)
    config.plugins.on_startup(command="build", dirty=False)
    build_site(config)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(folder)
    return folder


def test_nothing_is_loaded_from_other_hosts(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    found = {tag for page in pages for tag in FOREIGN.findall(page.read_text(encoding="utf-8"))}
    assert not found


@pytest.mark.parametrize(
    "tag",
    ['<script src="https://a.example/x.js">', "<link rel=x href=//a.example/y.css>", "<img alt=x src=http://a/b>"],
)
def test_references_to_other_hosts_are_found(tag: str) -> None:
    assert FOREIGN.findall(tag)
    assert not FOREIGN.findall('<a href="https://a.example">, <script src="x.js">')


def test_every_drawing_is_shown_as_one(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert "flowchart LR" not in page.read_text(encoding="utf-8"), f"{page.name}: mermaid, see scripts/docs_site.py"
    assert 'src="drawings/processes.svg"' in (site / "architecture.html").read_text(encoding="utf-8")
    assert 'src="../drawings/processes.svg"' in (site / "project/index.html").read_text(encoding="utf-8")


def test_pages_of_the_repository_and_source_files_are_in_the_site(site: Path) -> None:
    assert (site / "project/index.html").is_file(), "README"
    assert (site / "project/coordinator/index.html").is_file(), "a room's README"
    source = site / "source/coordinator/lockgate_coordinator/job/job_master.py.txt"
    assert source.read_text(encoding="utf-8").startswith('"""')
    assert 'href="source/' in (site / "glossary.html").read_text(encoding="utf-8")
    assert (site / "drawings/barriers.svg").is_file()


def _site_of(folder: Path, text: str) -> None:
    (folder / "docs").mkdir()
    (folder / "docs/index.md").write_text(f"# Title\n\n## Here\n\n{text}\n", encoding="utf-8")
    build(folder / "site", docs_dir=str(folder / "docs"), hooks=[], nav=[{"Start": "index.md"}])


@pytest.mark.parametrize(
    "text", ["[a](nowhere.md)", "[a](#nowhere)", "[a](index.md#nowhere)", "[a](/x.md)", "![](no.png)"]
)
def test_a_link_that_leads_nowhere_stops_the_build(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    from mkdocs.exceptions import Abort

    with caplog.at_level(logging.WARNING), pytest.raises(Abort):
        _site_of(tmp_path, text)


def test_a_link_that_leads_somewhere_does_not(tmp_path: Path) -> None:
    _site_of(tmp_path, "[a](#here), [b](index.md), [c](index.md#title)")
    assert (tmp_path / "site/index.html").is_file()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](b.md#c)", "[a](b.md#c)"),
        ("[a](../README.md#c)", "[a](project/README.md#c)"),
        ("[a](../ha/README.md)", "[a](project/ha/README.md)"),
        ("[a](../ha)", "[a](project/ha/README.md)"),
        ("[a](../examples/ledger.py)", "[a](source/examples/ledger.py.txt)"),
        ("![a](../web/dashboard.png)", "![a](source/web/dashboard.png)"),
        ("[a](#c), [b](https://b.example/c.md)", "[a](#c), [b](https://b.example/c.md)"),
        ("```\n[a](../README.md)\n```", "```\n[a](../README.md)\n```"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(text: str, expected: str) -> None:
    import docs_site

    assert docs_site.site_links(text, "docs/a.md", "a.md") == expected


def test_pages_outside_docs_are_a_folder_deeper() -> None:
    import docs_site

    text = "[a](docs/a.md) [b](ha/README.md) [c](Makefile)"
    assert docs_site.site_links(text, "README.md", "project/README.md") == (
        "[a](../a.md) [b](ha/README.md) [c](../source/Makefile.txt)"
    )


def test_the_reference_has_every_command() -> None:
    import reference

    from lockgate.cli import COMMANDS, cli

    page = reference.cli()
    for name in COMMANDS:
        assert f"\n## lockgate {name}\n" in page
        command = cli.get_command(click.Context(cli), name)
        for option in (found for found in command.params if isinstance(found, click.Option) and not found.hidden):
            assert option.opts[0] in page


def test_the_reference_has_every_setting() -> None:
    import reference

    from lockgate.settings import Settings

    page = reference.settings()
    names = [
        f"{group}.{key}" for group, field in Settings.model_fields.items() for key in field.annotation.model_fields
    ]
    assert [name for name in names if f"\n| `{name}` |" not in page] == []
    assert "| `coordinator.bind` | `127.0.0.1:7070` | `LOCKGATE_COORDINATOR_BIND` | where the job API listens |" in page


@pytest.mark.parametrize(
    ("before", "after", "reported"),
    [
        ("| `tls.mutual` |", "| `tls.mutuel` |", "has no row for the setting tls.mutual"),
        (
            "| `cluster.name` | `default` |",
            "| `cluster.name` | `lockgate` |",
            "gives cluster.name the default 'lockgate'",
        ),
        ("| `tls.mutual` |", "| `tls.gone` | `1` | x |\n| `tls.mutual` |", "that do not exist: tls.gone"),
    ],
)
def test_settings_that_the_guide_gets_wrong_are_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: str, after: str, reported: str
) -> None:
    import reference

    text = reference.GUIDE.read_text(encoding="utf-8")
    assert before in text
    wrong = tmp_path / "operators-guide.md"
    wrong.write_text(text.replace(before, after, 1), encoding="utf-8")
    monkeypatch.setattr(reference, "GUIDE", wrong)
    with pytest.raises(reference.Incomplete, match=reported):
        reference.settings()


def test_the_reference_has_every_rpc_and_message() -> None:
    import reference
    from lockgate_proto import codec, rpc

    page = reference.grpc_api()
    for service, methods in rpc.SERVICES.items():
        part = page.partition(f"\n### {service}\n")[2].partition("\n### ")[0]
        assert [name for name in methods if f"\n| `{name}` |" not in part] == []
    for module in codec._MODULES:
        for name in module.DESCRIPTOR.message_types_by_name:
            assert f"\n### {name}\n" in page
    assert "| `job_key` | 1 | string |" in page


def test_the_reference_has_every_path_and_schema_of_the_json_api() -> None:
    import reference
    from lockgate_web.endpoints import endpoints
    from lockgate_web.reads import Reads
    from lockgate_web.schemas import SCHEMAS

    page = reference.json_api()
    assert [found.path for found in endpoints(Reads("", "")) if f"\n## {found.method} {found.path}\n" not in page] == []
    assert [name for name in SCHEMAS if f"\n## {name}\n" not in page] == []
