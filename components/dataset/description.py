"""What a data set will hold, known before it is prepared: all that the training step's shapes depend on."""

from dataclasses import asdict, dataclass
from typing import Any, Self

from components.dataset import manifest as manifests
from components.dataset.manifest import Feature, Manifest, Task

# A text's share of padding has a standard deviation of at most 0.5, and of some 0.25 in practice: the mean of a
# thousand is then within 0.03, or 0.016, of all texts' in 19 samples of 20 (1.96 / sqrt(1000) of it).
PADDING_EXAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a data set will hold.

    Attributes:
        task: What the labels mean.
        features: Model inputs by name, as the manifest will have them.
        class_names: Names in the order of the model's logits.
        train_examples: Examples of the training split; None where that is unknown.
        exact: Whether `train_examples` was counted; else it is an estimate, or unknown.
        padding: Share of the training split's tokens that are padding, from 0 to 1, estimated from a sample; None for
            images, and where no texts were there to see.
        tokenizer: Where the tokenizer comes from; None for images.
    """

    task: Task
    features: dict[str, Feature]
    class_names: tuple[str, ...]
    train_examples: int | None
    exact: bool
    padding: float | None
    tokenizer: str | None

    @property
    def num_classes(self) -> int:
        """Classes, which is logits of the model."""
        return len(self.class_names)

    def to_json(self) -> dict[str, Any]:
        """Returns it as a JSON object."""
        return asdict(self) | {"class_names": list(self.class_names)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Returns the description that `to_json` made an object of.

        Raises:
            KeyError, TypeError: if the object is none.
        """
        features = {name: Feature(f["dtype"], tuple(f["shape"])) for name, f in value["features"].items()}
        return cls(**value | {"features": features, "class_names": tuple(value["class_names"])})


def of(folder: str) -> Description:
    """Returns the description of a data set that is prepared.

    Raises:
        DataError: if it is not whole, or has no training examples.
    """
    manifest = manifests.load(folder)
    return Description(
        task=manifest.task,
        features=manifest.features,
        class_names=manifest.class_names,
        train_examples=manifest.split("train").examples,
        exact=True,
        padding=_padding(folder, manifest),
        tokenizer=manifest.tokenizer.name if manifest.tokenizer else None,
    )


def _padding(folder: str, manifest: Manifest) -> float | None:
    """Returns the share of padding in the first training examples, None where they have no tokens."""
    if "attention_mask" not in manifest.features:
        return None
    from components.dataset import reader  # with TensorFlow, which a description read from JSON does not need

    ((features, _),) = reader.evaluation_data(
        folder, manifest, "train", batch_size=PADDING_EXAMPLES, limit=PADDING_EXAMPLES
    )
    return float(1 - features["attention_mask"].numpy().mean())
