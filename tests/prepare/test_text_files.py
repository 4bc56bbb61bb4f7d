import csv
import io
import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.errors import ConfigError, DataError
from components.prepare import text_files
from components.prepare.settings import PrepareSettings
from components.prepare.sources import open_source
from pipelines.config import Data

BOM = b"\xef\xbb\xbf"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
LABELS = st.sampled_from(["pos", "neg", "あ", "l'été"])
BLOCKS = st.integers(min_value=1, max_value=64)


def read(path: Path | str, **changed: object) -> list[tuple[str, str]]:
    settings = PrepareSettings(**Data(source=str(path), **changed).model_dump(), pretrained="")  # type: ignore[arg-type]
    return [(str(example.content), example.label) for example in open_source(settings).examples()]


def write(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


ROWS = [("good", "pos"), ("bad", "neg")]


@pytest.mark.parametrize(
    "content",
    [
        b"text,label\ngood,pos\nbad,neg\n",
        b"text,label\r\ngood,pos\r\nbad,neg",
        BOM + b"text,label\ngood,pos\nbad,neg\n",
        BOM + b'"text","label"\n"good","pos"\n"bad","neg"\n',
        b" text , label \ngood,pos\nbad, neg \n",
        b"text,label\n\ngood,pos\n\n\nbad,neg\n\n",
        b",text,label\n0,good,pos\n1,bad,neg\n",
        b"label,other,text\npos,1,good\nneg,2,bad\n",
    ],
    ids=["plain", "crlf", "bom", "bom quoted", "spaces", "blank lines", "unnamed column", "other order"],
)
def test_csv_gives_the_same_rows_however_it_was_exported(tmp_path: Path, content: bytes) -> None:
    assert read(write(tmp_path, "data.csv", content)) == ROWS


def test_bom_on_one_of_several_files(tmp_path: Path) -> None:
    write(tmp_path, "1.csv", b"text,label\na,pos\n")
    write(tmp_path, "2.csv", BOM + b"text,label\nb,neg\n")
    write(tmp_path, "3.tsv", b"label\ttext\npos\tc,d\n")
    write(tmp_path, "4.jsonl", BOM + b'{"label": "neg", "text": "e"}\n')
    assert read(tmp_path / "[1-4].*") == [("a", "pos"), ("b", "neg"), ("c,d", "pos"), ("e", "neg")]


def test_unnamed_column_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="components"):
        read(write(tmp_path, "data.csv", ",text,label\n0,good,pos\n1,bad,neg\n"))
    assert [record.message.rpartition("data.csv")[2] for record in caplog.records] == [
        ": ignored column 1, which has no name."
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("text\u200b,label\na,b\n", r"no column 'text' \(data.text_column\); its columns are 'text\\u200b', 'label'"),
        ("text,text,label\na,b,c\n", "2 columns 'text'"),
        ("text,label\ngood,pos,\nbad,neg\n", "data.csv, record 1 has 3 fields, expected 2"),
        ("text,label\nok,pos\na,b,c\n", "data.csv, record 2 has 3 fields, expected 2"),
        ("text,label\nok,pos\n\nalone\n", "data.csv, record 2 has 1 field, expected 2"),
        ('text,label\nok,pos\n"open,neg\nx,pos\n', "data.csv, record 2 is not well-formed"),
        ('text,label\n"a"b,neg\n', "data.csv, record 1 is not well-formed"),
        ("text,label\rgood,pos\r", "data.csv, header is not well-formed"),
        ("\n\n", "data.csv has no header"),
    ],
)
def test_broken_csv_is_refused_by_name(tmp_path: Path, content: str, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        read(write(tmp_path, "data.csv", content))


def test_missing_values_of_csv_come_empty(tmp_path: Path) -> None:
    path = write(tmp_path, "data.csv", "index,text,label\n1,12,pos\n9,,\n   \n2,  ,neg\n3,x,  \n")
    assert read(path) == [("12", "pos"), ("", ""), ("", ""), ("  ", "neg"), ("x", "")]


def test_a_field_as_long_as_a_book(tmp_path: Path) -> None:
    assert read(write(tmp_path, "data.csv", f"text,label\n{'x' * 3_000_000},pos\n"))[0][0] == "x" * 3_000_000


def test_jsonl_lines_end_at_line_feeds_only(tmp_path: Path) -> None:
    lines = ['{"text": "a\u2028b\u2029", "label": "pos"}', '{"text": "c\u0085d", "label": "neg"}', "  "]
    path = write(tmp_path, "data.jsonl", "\r\n".join(lines))
    assert read(path) == [("a\u2028b\u2029", "pos"), ("c\u0085d", "neg")]


def test_jsonl_values_become_text(tmp_path: Path) -> None:
    lines = [
        '{"text": 12, "label": 1}',
        '{"text": 1.50, "label": true}',
        '{"text": null, "label": NaN}',
        '{"text": NaN, "label": null}',
        '{"text": 12345678901234567890123, "label": -1e5}',
    ]
    expected = [("12", "1"), ("1.50", "true"), ("", ""), ("", ""), ("12345678901234567890123", "-1e5")]
    assert read(write(tmp_path, "data.jsonl", "\n".join(lines))) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"text": "a", ', "line 3 is no JSON"),
        ('["a", "pos"]', "line 3 is a JSON list"),
        ("null", "line 3 is a JSON null"),
        ("5", "line 3 is a JSON text or number"),
        ('{"text": "a"}', r"line 3 has no key 'label' \(data.label_column\); its keys are 'text'"),
        ('{"text": ["a"], "label": "b"}', "line 3: 'text' is a JSON list"),
        ('{"text": "\\ud800", "label": "b"}', "line 3: 'text' holds half of a surrogate pair"),
    ],
)
def test_broken_jsonl_is_refused_by_file_and_line(tmp_path: Path, line: str, expected: str) -> None:
    good = '{"text": "a", "label": "b"}\n'
    path = write(tmp_path, "shard-00002.jsonl", good + good + line + "\n" + good)
    with pytest.raises(DataError, match=f"shard-00002.jsonl, {expected}"):
        read(path)


def test_windows_1252_is_refused_by_row_and_byte_and_read_when_named(tmp_path: Path) -> None:
    rows = [b"it\x92s,pos" if row == 80 else b"fine,neg" for row in range(1, 101)]
    content = b"text,label\n" + b"\n".join(rows) + b"\n"
    path = write(tmp_path, "data.csv", content)
    with pytest.raises(DataError, match=rf"record 80: byte 0x92 at offset {content.index(0x92)} .*data.encoding"):
        read(path)
    assert read(path, encoding="cp1252")[79] == ("it\u2019s", "pos")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "gb18030"])
@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_other_encodings(tmp_path: Path, encoding: str, block: int) -> None:
    text = ("" if encoding in ("utf-16", "utf-8-sig", "gb18030") else "\ufeff") + "text,label\n中文\u2028🙂,pos\n"
    path = write(tmp_path, "data.csv", text.encode(encoding))
    with mock.patch.object(text_files, "BLOCK_BYTES", block):
        assert read(path, encoding=encoding) == [("中文\u2028🙂", "pos")]


def test_utf_16_taken_for_utf_8_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "data.csv", "\ufefftext,label\na,b\n".encode("utf-16-le"))
    with pytest.raises(
        DataError, match=r"data.csv, header: byte 0xff at offset 0 is not utf-8 text; set data.encoding"
    ):
        read(path)
    path = write(tmp_path, "data.jsonl", b'{"text": "a", "label": "b"}')
    with pytest.raises(DataError, match=r"data.jsonl, line 1: the bytes from offset 0 are not utf-16 text"):
        read(path, encoding="utf-16")


def test_a_file_cut_inside_a_character(tmp_path: Path) -> None:
    content = "text,label\na,b\né".encode()[:-1]
    with pytest.raises(DataError, match=f"record 2: byte 0xc3 at offset {len(content) - 1}"):
        read(write(tmp_path, "data.csv", content))


@pytest.mark.parametrize("encoding", ["utf-9", "base64", "hex"])
def test_unknown_encoding(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(ConfigError, match=f"data.encoding is '{encoding}'"):
        read(write(tmp_path, "data.csv", "text,label\na,b\n"), encoding=encoding)


def test_no_match_and_empty_files_are_refused_at_the_start(tmp_path: Path) -> None:
    write(tmp_path, "reviews.csv", "text,label\na,b\n")
    with pytest.raises(DataError, match=r"No file matches data.source '.*revews.csv'.*Did you mean '.*/reviews.csv'\?"):
        read(tmp_path / "revews.csv")
    with pytest.raises(DataError, match=r"No file matches data.source '.*trian/\*.csv'"):
        read(tmp_path / "trian" / "*.csv")
    with pytest.raises(DataError, match=r"expected files that end in .csv, .tsv, .jsonl"):
        read(tmp_path)
    write(tmp_path, "zero.csv", b"")
    with pytest.raises(DataError, match=r"zero.csv has no bytes at all"):
        read(tmp_path / "*.csv")


def test_a_name_that_looks_like_a_glob(tmp_path: Path) -> None:
    assert read(write(tmp_path, "été [1].csv", "text,label\na,b\n")) == [("a", "b")]


def test_nothing_depends_on_the_locale(tmp_path: Path) -> None:
    write(tmp_path, "data.csv", "text,label\n中文,l'été\n")
    program = (
        "from components.prepare.settings import PrepareSettings; from components.prepare.sources import open_source\n"
        "import sys; sys.modules['tensorflow'] = None\n"
        f"settings = PrepareSettings(**{Data(source='data.csv').model_dump()!r}, pretrained='')\n"
        "print([(ascii(e.content), ascii(e.label)) for e in open_source(settings).examples()])"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str([(ascii("中文"), ascii("l'été"))])


@given(
    rows=st.lists(st.tuples(TEXTS, LABELS), min_size=1, max_size=8), block=BLOCKS, end=st.sampled_from(["\n", "\r\n"])
)
def test_csv_comes_back_as_it_was_written(rows: list[tuple[str, str]], block: int, end: str) -> None:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator=end, quoting=csv.QUOTE_ALL).writerows([("text", "label"), *rows])
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(text_files, "BLOCK_BYTES", block):
        assert read(write(Path(folder), "data.csv", buffer.getvalue())) == rows


@given(rows=st.lists(st.tuples(TEXTS, LABELS), min_size=1, max_size=8), block=BLOCKS, ascii_only=st.booleans())
def test_jsonl_comes_back_as_it_was_written(rows: list[tuple[str, str]], block: int, ascii_only: bool) -> None:
    lines = [json.dumps({"text": text, "label": label}, ensure_ascii=ascii_only) for text, label in rows]
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(text_files, "BLOCK_BYTES", block):
        assert read(write(Path(folder), "data.jsonl", "\n".join(lines))) == rows


@given(before=TEXTS, block=BLOCKS)
def test_the_offset_of_an_undecodable_byte_is_exact(before: str, block: int) -> None:
    lines = [json.dumps({"text": line, "label": "a"}, ensure_ascii=False) for line in before.split("\n")]
    start = "\n".join([*lines, '{"text": "']).encode("utf-8")
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(text_files, "BLOCK_BYTES", block):
        path = write(Path(folder), "data.jsonl", start + b'\xff", "label": "b"}\n')
        with pytest.raises(DataError, match=rf"line {len(lines) + 1}: byte 0xff at offset {len(start)} "):
            read(path)
