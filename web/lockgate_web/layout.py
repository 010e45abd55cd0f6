"""Where the vertices of a job's graph are drawn: in layers from left to right, by grandalf. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grandalf.graphs import Edge, Graph, Vertex
from grandalf.layouts import SugiyamaLayout

WIDTH, HEIGHT = 190, 116
_GAP_X, _GAP_Y = 70, 34
_MARGIN = 12


class _Box:
    """The size of a vertex for grandalf, whose layers are rows: x and y are exchanged."""

    w, h = HEIGHT, WIDTH


@dataclass(frozen=True, slots=True)
class Layout:
    """Pixels. places: the upper left corner of each vertex, by id."""

    width: int
    height: int
    places: dict[str, tuple[int, int]]


def layout(vertices: Sequence[str], edges: Sequence[tuple[str, str]]) -> Layout:
    """edges: from and to, without circles; those of unknown vertices move nothing."""
    known = {name: Vertex(name) for name in vertices}
    for vertex in known.values():
        vertex.view = _Box()
        vertex.view.xy = (0.0, 0.0)
    lines = [edge for edge in dict.fromkeys(edges) if set(edge) <= set(known)]
    graph = Graph(list(known.values()), [Edge(known[source], known[target]) for source, target in lines])
    places: dict[str, tuple[int, int]] = {}
    top = _MARGIN
    for part in graph.C:
        centres = _centres(part)
        least_x, least_y = min(x for x, _ in centres.values()), min(y for _, y in centres.values())
        for name, (x, y) in centres.items():
            places[name] = (round(x - least_x) + _MARGIN, round(y - least_y) + top)
        top = max(places[name][1] for name in centres) + HEIGHT + _GAP_Y
    right = max((x + WIDTH for x, _ in places.values()), default=0)
    bottom = max((y + HEIGHT for _, y in places.values()), default=0)
    return Layout(right + _MARGIN, bottom + _MARGIN, places)


def _centres(part: object) -> dict[str, tuple[float, float]]:
    """Of one connected part, by id."""
    drawn = SugiyamaLayout(part)
    drawn.xspace, drawn.yspace = _GAP_Y, _GAP_X
    drawn.init_all(roots=[vertex for vertex in part.sV if not vertex.e_in()] or None)  # type: ignore[attr-defined]
    drawn.draw(3)
    return {vertex.data: (vertex.view.xy[1], vertex.view.xy[0]) for vertex in part.sV}  # type: ignore[attr-defined]
