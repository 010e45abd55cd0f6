"""A hook of mkdocs: what the site has beside the pages in docs/.

    reference/   made from the source, see scripts/reference.py
    project/     pages elsewhere in the repository that a page links to: README, DECISIONS, the rooms'
    source/      source files that a page links to, as text

Links are written for the repository, where `../README.md` leads somewhere. Here they are turned into links of the site,
and mkdocs, which is strict (mkdocs.yml), then finds those that lead nowhere.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

sys.path.insert(0, os.path.dirname(__file__))  # mkdocs runs a hook by its path

import reference

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)#\s]+)")
_FENCE = re.compile(r"(^ *```.*?^ *```)", re.MULTILINE | re.DOTALL)
_MERMAID = re.compile(r"^```mermaid\n.*?^```", re.MULTILINE | re.DOTALL)  # the script for it is on another host
_DRAWINGS = {"README.md": "docs/drawings/processes.svg", "docs/architecture.md": "docs/drawings/processes.svg"}
_IMAGES = (".png", ".svg")
_OF_FOLDER = "/README.md"


def on_files(files: Files, config: Any) -> Files:
    """Adds what is not in docs/."""
    for name, text in reference.pages().items():
        files.append(File.generated(config, f"reference/{name}", content=text))
    linked = _linked([f"docs/{file.src_uri}" for file in files.documentation_pages() if file.abs_src_path is not None])
    for path in sorted(linked):
        hidden = InclusionLevel.NOT_IN_NAV
        if (ROOT / path).is_file():
            files.append(File.generated(config, site_path(path), abs_src_path=str(ROOT / path), inclusion=hidden))
        else:
            files.append(File.generated(config, site_path(path), content=_listing(path), inclusion=hidden))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turns the repository's links into the site's."""
    here = page.file.src_uri
    if here.startswith("reference/"):
        return markdown
    path = repository_path(here)
    if path in _DRAWINGS:
        drawing = posixpath.relpath(_DRAWINGS[path], posixpath.dirname(path) or ".")
        markdown = _MERMAID.sub(f"![processes of a cluster]({drawing})", markdown)
    return site_links(markdown, path, here)


def site_path(path: str) -> str:
    """Where a file of the repository is in the site."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.endswith(".md"):
        return f"project/{path}"
    return f"source/{path}" if path.endswith(_IMAGES) else f"source/{path}.txt"


def repository_path(site: str) -> str:
    """The file of the repository that a page of the site is."""
    return site.removeprefix("project/") if site.startswith("project/") else f"docs/{site}"


def site_links(text: str, path: str, site: str) -> str:
    """The text of a page at `path` in the repository, as it has to be at `site`. Code blocks stay as they are."""

    def moved(link: re.Match[str]) -> str:
        return link[1] + posixpath.relpath(site_path(_target(path, link[2])), posixpath.dirname(site) or ".")

    parts = _FENCE.split(text)
    return "".join(part if number % 2 else _LINK.sub(moved, part) for number, part in enumerate(parts))


def _target(path: str, link: str) -> str:
    """The file of the repository that a link in the file `path` means; of a folder its README, be there one or not."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    return target + _OF_FOLDER if (ROOT / target).is_dir() else target


def _listing(readme: str) -> str:
    """In place of the README that a folder does not have."""
    folder = (ROOT / readme).parent
    names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith(("__", ".")))
    return "\n".join([f"# {readme.removesuffix(_OF_FOLDER)}", "", *(f"- `{name}`" for name in names), ""])


def _linked(pages: Iterable[str]) -> set[str]:
    """Existing files and folders outside docs/ that these pages link to, and those that these link to in turn."""
    found: set[str] = set()
    waiting = list(pages)
    while waiting:
        path = waiting.pop()
        for link in _LINK.finditer(_FENCE.sub("", (ROOT / path).read_text(encoding="utf-8"))):
            target = _target(path, link[2])
            if target.startswith("docs/") or target in found or not (ROOT / target).parent.is_dir():
                continue
            if (ROOT / target).is_file() and target.endswith(".md"):
                waiting.append(target)
            if (ROOT / target).is_file() or target.endswith(_OF_FOLDER):
                found.add(target)
    return found
