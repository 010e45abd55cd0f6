"""Where records end, and how many a piece has. What is expected here is what Spark's own parser (univocity) finds."""

from __future__ import annotations

import itertools

import pytest
from lockgate_taskmanager.spark.framing import Lines, QuotedRecords, quoted_records

MIB = 1 << 20


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB + 7])
@pytest.mark.parametrize("line", [b"\n", b"a line\n", b"\r\n", b"x"])
def test_lines_of_any_length_are_counted_in_pieces_of_any_size(size: int, line: bytes) -> None:
    piece = (line * (size // len(line) + 1))[:size]
    assert Lines().count(piece) == piece.count(b"\n")


RECORDS: list[tuple[dict[str, str], list[bytes]]] = [
    ({}, [b'1,5" pipe\n', b'2,"a\nb"\n', b"3,x\n"]),
    ({}, [b'"a"b\n', b'"a"" b\n', b'"a" , "b\n', b'"a" \r\n', b'""\n', b'"\n"\n']),
    ({}, [b'\xef\xbb\xbf"\n",x\n', b'\xef\xbb\xbf"\n', b'"\n",x\n']),
    ({}, [b'"\\"\n",\\"\n', b'"\\\\"\n', b'\\,"\n"\n', b'"a"\\"\n"\n', b'5"\n']),
    ({"escape": '"'}, [b'1,"a""\n""b"\n', b'"""\n"\n', b'""\n', b'6" and 7""\n', b'"\\"\n', b'"a"b"\n']),
    ({"escape": '"', "charToEscapeQuoteEscaping": "\\"}, [b'"\\"\n"\n', b'"\n"\n']),
    ({"escape": ""}, [b'"\\"\n', b'a"\n', b'"\n"\n']),
    ({"comment": "#"}, [b'#"\n', b'"\n#"\n', b'#,"\n', b'a,#"\n', b'"\n#\n"\n']),
    ({"ignoreLeadingWhiteSpace": "True"}, [b' \t"\n", "\n"\n', b'a "\n', b'"\n"\n']),
    ({"sep": ";;"}, [b'a;";;"\n";;\n', b'a;"\n', b'"\n";;"\n"\n']),
    ({"sep": "\\t"}, [b'a\t"\n"\n', b',"\n', b'"\n"\n']),
    ({"quote": "\u201c"}, ["a,\u201c\n\u201c\n".encode(), b'"\n', "a\u201c\n".encode(), b"\xe2\n"]),
    ({"quote": "'", "sep": " "}, [b"it's '\n'\n", b"'\n'\n"]),
]


@pytest.mark.parametrize(("options", "records"), RECORDS, ids=[str(options) for options, _ in RECORDS])
def test_a_quote_opens_a_value_only_where_it_begins(options: dict[str, str], records: list[bytes]) -> None:
    framing = quoted_records({**options, "multiLine": "true"})
    assert framing is not None
    data = b"".join(records)
    expected = list(itertools.accumulate(map(len, records)))
    assert (framing.ends(data) + 1).tolist() == expected
    assert framing.count(data) == len(records)
    for cut in range(len(data)):
        assert framing.end(data[:cut]) == max((end for end in expected if end <= cut), default=0)


def test_the_usual_quotes_are_paired_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a look at each of them, which takes three times as long."""
    monkeypatch.delattr(QuotedRecords, "_paired")
    for escape in ('"', "\\"):
        framing = quoted_records({"multiLine": "true", "escape": escape})
        assert framing is not None
        assert framing.count(b'1,"a\n","",b\n2,"' + escape.encode() + b'"\n",""\r\n') == 2
