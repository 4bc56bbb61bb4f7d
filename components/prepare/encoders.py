"""What an example becomes: the features of the data set."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from components.dataset.manifest import Feature, Tokenizer
from components.errors import ConfigError, DataError
from components.prepare.settings import PrepareSettings
from components.prepare.source import Example, Source
from components.prepare.tokenizer import WordPieceTokenizer


class Encoder(Protocol):
    """Turns examples into the features of the data set."""

    @property
    def features(self) -> dict[str, Feature]:
        """The features, known once an example was seen."""

    def __call__(self, examples: list[Example]) -> list[dict[str, npt.NDArray[np.generic]]]:
        """Returns the features of every example."""

    def padding(self, examples: list[Example]) -> float | None:
        """Returns the share of the examples' tokens that are padding, or None if they have no tokens."""

    def save(self, folder: str) -> Tokenizer | None:
        """Writes what must go with the features, and returns the manifest's entry for it."""


class _TextEncoder:
    """Token ids, by the tokenizer that the model was pretrained with."""

    def __init__(self, tokenizer: WordPieceTokenizer) -> None:
        self._tokenizer, self.features = tokenizer, tokenizer.features

    def __call__(self, examples: list[Example]) -> list[dict[str, npt.NDArray[np.generic]]]:
        """Returns the token features of every text."""
        columns = self._tokenizer([str(example.content) for example in examples])
        return [{name: column[row] for name, column in columns.items()} for row in range(len(examples))]

    def padding(self, examples: list[Example]) -> float | None:
        """Returns the share of the texts' tokens that are padding, from 0 to 1."""
        return self._tokenizer.padding([str(example.content) for example in examples]) if examples else None

    def save(self, folder: str) -> Tokenizer:
        """Writes the vocabulary."""
        return self._tokenizer.save(folder)


class _ImageEncoder:
    """Pixels as they are; the first image says the shape that all must have."""

    def __init__(self) -> None:
        self.features: dict[str, Feature] = {}

    def __call__(self, examples: list[Example]) -> list[dict[str, npt.NDArray[np.generic]]]:
        """Returns the pixels of every image."""
        return [{"image": self._checked(example)} for example in examples]

    def _checked(self, example: Example) -> npt.NDArray[np.generic]:
        image = np.asarray(example.content)
        if image.dtype != np.uint8 or image.ndim != 3:
            raise DataError(
                f"{example.where} is an image of {image.dtype} and shape {image.shape}, expected uint8 and "
                "[height, width, channels]."
            )
        expected = self.features.setdefault("image", Feature("uint8", image.shape)).shape
        if image.shape != expected:
            raise DataError(
                f"{example.where} is an image of shape {image.shape}, the ones before it have {expected}; make all "
                "images of the data set one size."
            )
        return image

    def padding(self, examples: list[Example]) -> None:
        """Images have no tokens."""

    def save(self, folder: str) -> None:
        """Images need nothing beside them."""


def encoder_of(source: Source, settings: PrepareSettings) -> Encoder:
    """Returns the encoder of a source's examples.

    Raises:
        ConfigError: if the source holds texts, and no model is named whose tokenizer to take.
        ModelError: if the tokenizer can't be loaded or used.
    """
    if source.task == "image_classification":
        return _ImageEncoder()
    if not settings.pretrained:
        raise ConfigError(
            f"{settings.source} holds texts, so model.pretrained is needed for its tokenizer: a folder, "
            "a gs:// folder, sample://minilm or a hub name."
        )
    return _TextEncoder(WordPieceTokenizer(settings.pretrained, max_length=settings.max_length))
