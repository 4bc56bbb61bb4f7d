"""Texts and labels from CSV, TSV and JSONL files. Nothing here depends on the platform's locale."""

import codecs
import csv
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from components import files
from components.errors import ConfigError, DataError, did_you_mean
from components.prepare.settings import PrepareSettings
from components.prepare.source import Example, Source
from components.step import log

SUFFIXES = (".csv", ".tsv", ".jsonl")
BLOCK_BYTES = 1 << 20
# The csv module refuses a field above 131,072 characters, which a long document has. Above this, a quote was left open.
FIELD_CHARACTERS = 10_000_000


class TextFiles(Source):
    """One file, or all that a glob matches, in the order of their names; each is read by its suffix."""

    task = "text_classification"

    def __init__(self, settings: PrepareSettings) -> None:
        _check_encoding(settings.encoding)
        self._uris = _matching_files(settings.source)
        self._text, self._label = settings.text_column, settings.label_column
        self._encoding = settings.encoding

    def examples(self) -> Iterator[Example]:
        """Yields a text for every record. A text or label that is missing comes as an empty string."""
        for uri in self._uris:
            if _suffix(uri) == ".jsonl":
                yield from self._json_examples(uri)
            else:
                yield from self._csv_examples(uri, "\t" if _suffix(uri) == ".tsv" else ",")

    def _csv_examples(self, uri: str, delimiter: str) -> Iterator[Example]:
        csv.field_size_limit(FIELD_CHARACTERS)
        # strict: a quote inside a quoted field, or one left open, is an error and not a guess.
        records = _records(
            uri, self._encoding, csv.reader(_lines(uri, self._encoding), delimiter=delimiter, strict=True)
        )
        header = [name.strip() for name in next(records, (0, []))[1]]
        text, label = (_column(uri, header, name, setting) for name, setting in self._columns())
        if unnamed := [index for index, name in enumerate(header, start=1) if not name]:
            log.info(f"{uri}: ignored column {', '.join(map(str, unnamed))}, which has no name.")
        for number, record in records:
            where = f"{uri}, record {number}"
            if len(record) == 1 and not record[0].strip():  # a line of spaces: a row with nothing in it
                yield Example("", "", where)
                continue
            if len(record) != len(header):
                raise DataError(
                    f"{where} has {_count(len(record), 'field')}, expected {len(header)} as in the header; "
                    "put quotes around a text that holds the separator, a quote or a line end."
                )
            yield Example(record[text], record[label].strip(), where)

    def _json_examples(self, uri: str) -> Iterator[Example]:
        for number, line in _numbered_lines(uri, self._encoding):
            if not line.strip():
                continue
            where = f"{uri}, line {number}"
            record = _json_object(line, where)
            text, label = (_json_text(record, name, setting, where) for name, setting in self._columns())
            yield Example(text, label.strip(), where)

    def _columns(self) -> tuple[tuple[str, str], ...]:
        return (self._text, "data.text_column"), (self._label, "data.label_column")


def _check_encoding(encoding: str) -> None:
    try:
        "".encode(encoding)
    except (LookupError, UnicodeError, ValueError) as error:
        raise ConfigError(
            f"data.encoding is {encoding!r}, expected an encoding that Python knows, such as utf-8, cp1252 or utf-16."
        ) from error


def _matching_files(source: str) -> list[str]:
    uris = [source] if not files.is_remote(source) and Path(source).is_file() else _glob(source)
    if not uris:
        raise DataError(f"No file matches data.source {source!r}; check its path.{_near_file(source)}")
    for uri in uris:
        if _suffix(uri) not in SUFFIXES:
            raise DataError(f"data.source matches {uri!r}, expected files that end in {', '.join(SUFFIXES)}.")
        if not files.size(uri):
            raise DataError(f"{uri} has no bytes at all; write it again, or leave it out of data.source.")
    return uris


def _glob(pattern: str) -> list[str]:
    try:
        return files.glob(pattern)
    except OSError as error:
        raise DataError(
            f"data.source {pattern!r} can't be listed ({error.strerror}); check the bucket's name, and that the "
            "account of this step may read it."
        ) from error


def _near_file(source: str) -> str:
    if files.is_remote(source) or any(character in source for character in "*?["):
        return ""
    folder = Path(source).parent
    return did_you_mean(source, [str(path) for path in folder.iterdir()]) if folder.is_dir() else ""


def _suffix(uri: str) -> str:
    return PurePosixPath(uri).suffix.lower()


class _UndecodableError(Exception):
    """Bytes that are no text in the file's encoding."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


def _lines(uri: str, encoding: str) -> Iterator[str]:
    r"""Yields the lines of a file with their ends, without a byte-order mark.

    A line ends at `\n` and nowhere else: `str.splitlines` would also cut at U+2028 or U+0085 within a text.

    Raises:
        _UndecodableError: once every line before the undecodable bytes was yielded.
    """
    decoder = codecs.getincrementaldecoder(encoding)()
    rest, bytes_read, at_start, block = "", 0, True, b"first"
    with files.open_bytes(uri) as file:
        while block:
            block = file.read(BLOCK_BYTES)
            bytes_read += len(block)
            problem = None
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                pending = len(error.object) - len(block)  # bytes of a character that the last block had cut in two
                text = decoder.decode(block[: max(0, error.start - pending)])
                offset = bytes_read - len(error.object) + error.start
                problem = f"byte 0x{error.object[error.start]:02x} at offset {offset} is not {encoding} text"
            except UnicodeError as error:  # UTF-16 without a byte-order mark
                text, problem = "", f"the bytes from offset 0 are not {encoding} text ({error})"
            if at_start and text:
                text, at_start = text.removeprefix("\ufeff"), False
            *lines, rest = (rest + text).split("\n")
            for line in lines:
                yield line + "\n"
            if problem:
                raise _UndecodableError(problem)
    if rest:
        yield rest


def _undecodable(where: str, error: _UndecodableError) -> DataError:
    return DataError(
        f"{where}: {error.what}; set data.encoding to the file's encoding, such as cp1252 or utf-16, "
        "or save it as UTF-8."
    )


def _records(uri: str, encoding: str, reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Yields the header as record 0, then the records, numbered from 1; blank lines are passed over."""
    number = 0
    while True:
        where = f"{uri}, record {number}" if number else f"{uri}, header"
        try:
            record = next(reader)
        except StopIteration:
            return
        except _UndecodableError as error:
            raise _undecodable(where, error) from error
        except csv.Error as error:
            raise DataError(
                f"{where} is not well-formed ({error}); quote its texts as CSV does, a quote inside a text doubled, "
                "and end lines with \\n or \\r\\n."
            ) from error
        if record:
            yield number, record
            number += 1


def _numbered_lines(uri: str, encoding: str) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        for number, line in enumerate(_lines(uri, encoding), start=1):
            yield number, line
    except _UndecodableError as error:
        raise _undecodable(f"{uri}, line {number + 1}", error) from error


def _column(uri: str, header: list[str], name: str, setting: str) -> int:
    if not header:
        raise DataError(f"{uri} has no header; its first line must name the columns.")
    if (found := Counter(header)[name]) > 1:
        raise DataError(f"{uri} has {found} columns {name!r} ({setting}); rename all but one.")
    if not found:
        raise DataError(
            f"{uri} has no column {name!r} ({setting}); its columns are {', '.join(map(repr, header))}."
            f"{did_you_mean(name, header)}"
        )
    return header.index(name)


def _json_object(line: str, where: str) -> dict[str, Any]:
    try:
        # Numbers stay as they are written, so that 1.50 and a 20-digit id come out unchanged.
        record = json.loads(line, parse_int=str, parse_float=str, parse_constant=_json_constant)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is no JSON ({error}); each line must be one whole JSON object.") from error
    if not isinstance(record, dict):
        raise DataError(f"{where} is a JSON {_json_type(record)}, expected an object with a text and a label.")
    return record


def _json_constant(name: str) -> str | None:
    return None if name == "NaN" else name


def _json_type(value: Any) -> str:
    names = {list: "list", dict: "object", str: "text or number", bool: "boolean", type(None): "null"}
    return names[type(value)]


def _json_text(record: dict[str, Any], key: str, setting: str, where: str) -> str:
    if key not in record:
        raise DataError(
            f"{where} has no key {key!r} ({setting}); its keys are {', '.join(map(repr, record))}."
            f"{did_you_mean(key, record)}"
        )
    value = record[key]
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        raise DataError(f"{where}: {key!r} is a JSON {_json_type(value)}, expected text or a number.")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise DataError(
            f"{where}: {key!r} holds half of a surrogate pair, which is no character; write the text again."
        )
    return value


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
