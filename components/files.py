"""Files by URI: local paths through the standard library, `gs://` through TensorFlow's own file system.

TensorFlow is imported only when a URI needs it, so that light steps stay light.
"""

import contextlib
import errno
import glob as local_glob
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from components.errors import first_line


def is_remote(uri: str) -> bool:
    """Says whether `uri` names an object store rather than a local path."""
    return "://" in uri


@contextlib.contextmanager
def _remote(uri: str) -> Iterator[Any]:
    """Yields TensorFlow's file system, whose errors become those that local files raise."""
    import tensorflow as tf

    try:
        yield tf.io.gfile
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, first_line(error), uri) from error
    except (tf.errors.PermissionDeniedError, tf.errors.UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, first_line(error), uri) from error
    except tf.errors.OpError as error:
        raise OSError(errno.EIO, first_line(error), uri) from error


def join(uri: str, *parts: str) -> str:
    """Joins path parts to a URI or a local path."""
    return "/".join([uri.rstrip("/"), *parts]) if is_remote(uri) else str(Path(uri, *parts))


def exists(uri: str) -> bool:
    """Says whether a file or directory is there."""
    if is_remote(uri):
        with _remote(uri) as gfile:
            return gfile.exists(uri)
    return Path(uri).exists()


def size(uri: str) -> int:
    """Returns a file's size in bytes."""
    if is_remote(uri):
        with _remote(uri) as gfile:
            return gfile.stat(uri).length
    return Path(uri).stat().st_size


def make_directory(uri: str) -> None:
    """Makes a directory with its parents; one that is there already is left as it is."""
    if is_remote(uri):
        with _remote(uri) as gfile:
            gfile.makedirs(uri)
    else:
        Path(uri).mkdir(parents=True, exist_ok=True)


def remove_tree(uri: str) -> None:
    """Removes a directory with all it holds, if it is there."""
    if not exists(uri):
        return
    if is_remote(uri):
        with _remote(uri) as gfile:
            gfile.rmtree(uri)
    else:
        shutil.rmtree(uri)


def walk(uri: str) -> Iterator[str]:
    """Yields every file below a directory, in sorted order within each folder."""
    with _remote(uri) if is_remote(uri) else contextlib.nullcontext(os) as system:
        for folder, folders, names in system.walk(uri):
            folders.sort()
            for name in sorted(names):
                yield join(folder, name)


def glob(pattern: str) -> list[str]:
    """Returns the files that match a pattern, sorted by name."""
    if is_remote(pattern):
        with _remote(pattern) as gfile:
            return sorted(gfile.glob(pattern))
    return sorted(local_glob.glob(pattern))  # noqa: PTH207 - Path.glob refuses absolute patterns


@contextlib.contextmanager
def open_bytes(uri: str) -> Iterator[BinaryIO]:
    """Opens a file to read it in pieces; errors while it is read are those of local files too."""
    if is_remote(uri):
        with _remote(uri) as gfile, gfile.GFile(uri, "rb") as file:
            yield file
    else:
        with Path(uri).open("rb") as file:
            yield file


def read_bytes(uri: str) -> bytes:
    """Returns a file's content."""
    with open_bytes(uri) as file:
        return file.read()


def write_bytes(uri: str, content: bytes) -> None:
    """Writes a file whole or not at all: a reader never sees a part of it."""
    if is_remote(uri):  # an object appears only once its upload is complete
        with _remote(uri) as gfile, gfile.GFile(uri, "wb") as file:
            file.write(content)
        return
    target = Path(uri)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    partial.write_bytes(content)
    partial.replace(target)


def read_json(uri: str) -> Any:
    """Returns the value of a JSON file."""
    return json.loads(read_bytes(uri).decode("utf-8"))


def write_json(uri: str, value: Any) -> None:
    """Writes a value as JSON, whole or not at all. NaN and infinity are refused: JSON has no word for them."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    write_bytes(uri, (text + "\n").encode("utf-8"))


def copy_tree(source: str, target: str) -> None:
    """Copies every file below a directory into another, between any two file systems."""
    source = join(source)
    for uri in walk(source):
        write_bytes(join(target, uri[len(source) + 1 :]), read_bytes(uri))


@contextlib.contextmanager
def new_directory(uri: str) -> Iterator[str]:
    """Makes an empty directory for a step's output, and removes it if the step fails.

    What an earlier, failed try left there is removed first. The caller writes the directory's JSON last, so a
    directory that is there without it (a killed process can't clean up) is known to be incomplete.
    """
    remove_tree(uri)
    make_directory(uri)
    try:
        yield uri
    except BaseException:
        remove_tree(uri)
        raise
