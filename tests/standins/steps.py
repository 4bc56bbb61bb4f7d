"""A step of a small run, every folder of which is in a bucket: `python -m tests.standins.steps STEP`."""

import sys

from components.step import running

DATASET, MODEL, CHECKPOINTS = (
    "gs://bucket/run/prepare/dataset",
    "gs://bucket/run/train/model",
    "gs://bucket/checkpoints",
)
REPORT, EXPORT = "gs://bucket/run/evaluate/report.html", "gs://bucket/run/export/exported"


def prepare() -> None:
    from components.prepare.prepare import prepare
    from components.prepare.settings import PrepareSettings

    settings = PrepareSettings(
        source="sample://mnist",
        text_column="text",
        label_column="label",
        encoding="utf-8",
        tfds_data_dir="",
        tfds_feature="",
        try_gcs=False,
        train_split="train",
        test_split="",
        sample_fraction=0.1,
        validation_fraction=0.1,
        test_fraction=0.1,
        split_seed=0,
        empty_rows="drop",
        max_length=64,
        shard_megabytes=100,
        pretrained="",
    )
    prepare(settings, DATASET)


def train() -> None:
    from components.train.options import TrainOptions
    from components.train.train import train

    options = TrainOptions(
        builder="image_classifier",
        arguments={"filters": [4], "dense_units": [16], "dropout": 0.1},
        epochs=1,
        global_batch_size=32,
        checkpoint_every_steps=5,
        checkpoint_dir=CHECKPOINTS,
    )
    train(DATASET, MODEL, options)


def evaluate() -> None:
    from components import files
    from components.evaluate.evaluate import evaluate
    from components.evaluate.report import render

    files.write_bytes(REPORT, render(evaluate(MODEL, DATASET, batch_size=64)).encode("utf-8"))


def export() -> None:
    from components.export.export import export

    export(MODEL, DATASET, EXPORT, name="digits")


OUTPUTS = {"prepare": DATASET, "train": MODEL, "evaluate": REPORT, "export": EXPORT}

if __name__ == "__main__":
    name = sys.argv[1]
    with running(name, output=OUTPUTS[name]):
        globals()[name]()
