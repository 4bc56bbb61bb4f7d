"""What a source of labelled examples is."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from components.dataset.manifest import Task

GivenSplit = Literal["train", "test"]


@dataclass(frozen=True, eq=False, slots=True)
class Example:
    """A labelled text or image, as its source has it.

    Attributes:
        content: The text, or uint8 pixels `[height, width, channels]`.
        label: Name of the class; blank where the source has no label for it.
        where: Where it stands, for errors: `reviews.csv, record 12`.
        split: `train` (the validation split is taken from it) or `test` where the source decides that, else None.
    """

    content: str | npt.NDArray[np.uint8]
    label: str
    where: str
    split: GivenSplit | None = None


class Source(ABC):
    """A source of labelled examples, read as a stream, as often as needed.

    Attributes:
        task: What the labels mean.
        class_names: Names of the classes in order, or None where they must be collected from the examples.
        total: How many examples there are, where that is known.
    """

    task: Task
    class_names: tuple[str, ...] | None = None
    total: int | None = None

    @abstractmethod
    def examples(self) -> Iterator[Example]:
        """Yields every example, in the same order at each call."""
