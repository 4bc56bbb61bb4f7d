"""Text and image classification data sets of TensorFlow Datasets."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from components import files
from components.errors import ConfigError, DataError, did_you_mean
from components.prepare.settings import PrepareSettings
from components.prepare.source import Example, GivenSplit, Source
from components.step import log

PREFIX = "tfds://"


class TfdsSource(Source):
    """`tfds://NAME`: a data set that has a ClassLabel, and a text or an image.

    Args:
        settings: Its name, and what to read of it.
        download: Download it if it is not there. Without that the network is left alone, and `available` says whether
            the examples can be read; the task and the classes are known either way.
    """

    def __init__(self, settings: PrepareSettings, *, download: bool = True) -> None:
        self._source = settings.source
        self._builder = _prepared_builder(settings) if download else _builder(settings, try_gcs=False)
        features = self._builder.info.features
        self._label = _label_key(self._source, self._builder.info)
        self._content = _content_key(self._source, self._builder.info, settings.tfds_feature)
        self.task = "image_classification" if _is_image(features[self._content]) else "text_classification"
        self.class_names = tuple(features[self._label].names)
        self._reads: list[tuple[str, GivenSplit | None]] = [(settings.train_split, None)]
        if settings.test_split:
            self._reads = [(settings.train_split, "train"), (settings.test_split, "test")]
        if self.available:
            self._check_splits()
            self.total = sum(self._examples_of(name) for name, _ in self._reads)

    @property
    def available(self) -> bool:
        """Whether the data set's files are there."""
        return bool(self._builder.data_path.exists())

    @property
    def train_total(self) -> int:
        """Examples of `data.train_split`, where the data set is available."""
        return self._examples_of(self._reads[0][0])

    def image_like(self) -> Example:
        """Returns an image of the size that all have: a black one where the data set declares it, else the first.

        Raises:
            DataError: if the size is not declared, and the data set is not available.
        """
        feature = self._builder.info.features[self._content]
        if None not in feature.shape:
            content = np.zeros(feature.shape, feature.np_dtype)
            return Example(content, "", f"{self._source} {self._reads[0][0]}, example 1")
        if not self.available:
            raise DataError(
                f"{self._source} declares images of shape {feature.shape}, so their size is known only once they are "
                f"there, and {self._builder.data_path} is not; take a data set whose images have one size, or "
                f"{_how_to_supply(self._source.removeprefix(PREFIX))}"
            )
        return next(self.examples())

    def examples(self) -> Iterator[Example]:
        """Yields the examples of the training split, then those of the test split."""
        for name, split in self._reads:
            for read, record in enumerate(self._records(name), start=1):
                where = f"{self._source} {name}, example {read}"
                label = int(record[self._label])  # -1 where the set's authors keep it to themselves, as in GLUE's tests
                label_name = self.class_names[label] if label >= 0 and self.class_names else ""
                yield Example(self._content_of(record, where), label_name, where, split)

    def _records(self, name: str) -> Iterator[Any]:
        import tensorflow as tf
        import tensorflow_datasets as tfds

        try:
            config = tfds.ReadConfig(try_autocache=False)  # tfds would hold a small set in memory
            yield from tfds.as_numpy(self._builder.as_dataset(split=name, shuffle_files=False, read_config=config))
        except tf.errors.OpError as error:
            raise DataError(
                f"{self._source} can't be read in {name} ({_first_line(error)}): {_damaged(self._builder)}"
            ) from error

    def _content_of(self, record: Any, where: str) -> Any:
        content = record[self._content]
        if self.task == "image_classification":
            return content
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{where}: its {self._content!r} is not UTF-8 text ({error}).") from error

    def _examples_of(self, name: str) -> int:
        return int(self._builder.info.splits[name].num_examples)

    def _check_splits(self) -> None:
        settings = ("data.train_split", "data.test_split")
        spans = [self._spans(name, setting) for (name, _), setting in zip(self._reads, settings, strict=False)]
        if len(spans) == 2 and any(_overlap(train, test) for train in spans[0] for test in spans[1]):
            raise ConfigError(
                f"data.train_split {self._reads[0][0]!r} and data.test_split {self._reads[1][0]!r} share examples, so "
                "the test would be on training data; give slices apart, such as train[:80%] and train[80%:]."
            )

    def _spans(self, name: str, setting: str) -> list[tuple[str, int, int]]:
        """Returns what a split or slice covers, as (split, from, to).

        Raises:
            ConfigError: if it is not written right, names an unknown split, or covers nothing.
        """
        import tensorflow_datasets as tfds

        splits = self._builder.info.splits
        available = ", ".join(f"{known} ({split.num_examples:,} examples)" for known, split in splits.items())
        try:
            parts = tfds.core.ReadInstruction.from_spec(name).to_absolute(splits)
            examples = self._examples_of(name)
        except (ValueError, AssertionError, KeyError) as error:
            raise ConfigError(
                f"{setting} is {name!r}, which is no split or slice of {self._source} ({_first_line(error)}); it has "
                f"{available}, and a slice is written as train[:80%].{did_you_mean(name, splits)}"
            ) from error
        if examples <= 0:
            raise ConfigError(f"{setting} is {name!r}, which holds no examples; {self._source} has {available}.")
        return [(part.splitname, part.from_ or 0, splits[part.splitname].num_examples if part.to is None else part.to)
                for part in parts]  # fmt: skip


def _overlap(one: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
    return one[0] == other[0] and max(one[1], other[1]) < min(one[2], other[2])


def _builder(settings: PrepareSettings, *, try_gcs: bool) -> Any:
    """Returns the data set's builder, whose files are whole if they are there. Only `try_gcs` asks the network."""
    import tensorflow_datasets as tfds

    name = settings.source.removeprefix(PREFIX)
    if settings.try_gcs and settings.tfds_data_dir:
        raise ConfigError(
            f"data.try_gcs is on and data.tfds_data_dir is {settings.tfds_data_dir!r}; set one of them, not both."
        )
    folder = {"data_dir": settings.tfds_data_dir} if settings.tfds_data_dir else {}
    try:
        builder = tfds.builder(name, try_gcs=try_gcs, **folder)
    except Exception as error:
        raise _not_found(settings, error) from error
    _check_complete(builder)
    return builder


def _prepared_builder(settings: PrepareSettings) -> Any:
    """Returns the data set's builder once its files are there, whole: read from disk, or downloaded first."""
    import tensorflow_datasets as tfds

    tfds.disable_progress_bar()  # it redraws a line, which a log can't show
    builder = _builder(settings, try_gcs=settings.try_gcs)
    name = settings.source.removeprefix(PREFIX)
    if not builder.data_path.exists():
        log.info(
            f"{settings.source}: downloading to {builder.data_path}; without a network tfds gives up after minutes"
        )
    try:
        builder.download_and_prepare()
    except ModuleNotFoundError as error:
        raise DataError(
            f"{settings.source} can't be built without the Python package {error.name}, which is not installed; "
            f"install it, or {_how_to_supply(name)}"
        ) from error
    except Exception as error:  # a download has too many ways to fail to list: proxies, quotas, checksums, disks
        where = settings.tfds_data_dir or "the default folder of tfds"
        raise DataError(
            f"{settings.source} is not in {where}, and could not be downloaded ({type(error).__name__}: "
            f"{_first_line(error)}); {_how_to_supply(name)}"
        ) from error
    _check_complete(builder)
    return builder


def _not_found(settings: PrepareSettings, error: Exception) -> ConfigError:
    import tensorflow_datasets as tfds

    names = tfds.list_builders(with_community_datasets=False)
    if folder := settings.tfds_data_dir:
        names += [path.rstrip("/").rpartition("/")[2] for path in files.glob(files.join(folder, "*"))]
    known = [PREFIX + name for name in names]
    name, _, _ = settings.source.removeprefix(PREFIX).replace(":", "/").partition("/")
    # The name may be right, and only its configuration or version unknown: then tfds's own words say it.
    near = "" if name in names else did_you_mean(PREFIX + name, known)
    where = f" in {folder}" if folder else ""
    return ConfigError(f"data.source is {settings.source!r}, which tfds can't open{where}: {_first_line(error)}{near}")


def _check_complete(builder: Any) -> None:
    """Refuses a folder that an interrupted build or copy left half-written: tfds itself takes it as it is."""
    if not builder.data_path.exists():
        return
    if not (builder.data_path / "dataset_info.json").exists():
        raise DataError(f"{builder.data_path} has no dataset_info.json: {_damaged(builder)}")
    for split in builder.info.splits.values():
        for path in split.filepaths:
            if not path.exists():
                raise DataError(f"{path} is missing, dataset_info.json promises it: {_damaged(builder)}")


def _damaged(builder: Any) -> str:
    name = builder.info.full_name.rpartition("/")[0]
    return f"the folder is half-written or damaged; remove {builder.data_path}, then {_how_to_supply(name)}"


def _how_to_supply(name: str) -> str:
    return (
        f"build it on a machine with a network (tfds build {name} --data_dir=FOLDER) and set data.tfds_data_dir to "
        "that folder, or to a gs:// copy of it."
    )


def _label_key(source: str, info: Any) -> str:
    import tensorflow_datasets as tfds

    labels = [key for key, feature in _features(source, info).items() if isinstance(feature, tfds.features.ClassLabel)]
    if info.supervised_keys and info.supervised_keys[-1] in labels:
        return str(info.supervised_keys[-1])
    if len(labels) != 1:
        found = f"several ({', '.join(labels)})" if labels else "none"
        raise ConfigError(
            f"{source} must have one ClassLabel among its features, and has {found}; take another data set."
        )
    return labels[0]


def _content_key(source: str, info: Any, tfds_feature: str) -> str:
    features = _features(source, info)
    candidates = [key for key, feature in features.items() if _is_image(feature) or _is_text(feature)]
    if tfds_feature:
        if tfds_feature not in candidates:
            raise ConfigError(
                f"data.tfds_feature is {tfds_feature!r}, expected the key of a text or image of {source}: "
                f"{', '.join(candidates)}.{did_you_mean(tfds_feature, candidates)}"
            )
        return tfds_feature
    if info.supervised_keys and info.supervised_keys[0] in candidates:
        return str(info.supervised_keys[0])
    if len(candidates) != 1:
        found = f"has several ({', '.join(candidates)})" if candidates else f"has neither (only {', '.join(features)})"
        raise ConfigError(f"{source} must have a text or an image, and {found}; name one as data.tfds_feature.")
    return candidates[0]


def _features(source: str, info: Any) -> dict[str, Any]:
    import tensorflow_datasets as tfds

    if not isinstance(info.features, tfds.features.FeaturesDict):
        raise ConfigError(f"{source} has no named features, so no label to learn; take a classification data set.")
    return dict(sorted(info.features.items()))  # tfds gives them in no fixed order


def _is_image(feature: Any) -> bool:
    import tensorflow_datasets as tfds

    return isinstance(feature, tfds.features.Image)


def _is_text(feature: Any) -> bool:
    import tensorflow_datasets as tfds

    return isinstance(feature, tfds.features.Text)


def _first_line(error: Exception) -> str:
    text = re.sub(r"\{\{.*?\}\} ?", "", str(error))  # TensorFlow puts the graph's node in front
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
