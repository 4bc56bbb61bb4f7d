"""The training step, from top to bottom."""

import os
import time
from dataclasses import asdict
from typing import Any

import numpy as np
import tensorflow as tf

from components import files
from components.dataset import manifest as manifests
from components.dataset import reader
from components.dataset.manifest import Manifest
from components.errors import ConfigError, ModelError
from components.models import saved, text_classifier
from components.models.saved import ModelDescription
from components.step import log
from components.train import strategy as strategies
from components.train.actions import (
    Actions,
    Figures,
    SaveWithinEpoch,
    ShowProgress,
    WriteScalars,
    stop_on_nan,
    write_scalars,
)
from components.train.checkpoints import Checkpoints
from components.train.inputs import distribute
from components.train.options import TrainOptions
from components.train.setup import builder_arguments, in_order_of_logits, make_loop, make_model, whole_steps
from components.train.validation import Validation


def train(dataset_folder: str, model_folder: str, options: TrainOptions) -> ModelDescription:
    """Trains a model and writes the best one of its epochs.

    A run that was killed and is started again with the same options goes on from the newest checkpoint in
    `options.checkpoint_dir`.

    Args:
        dataset_folder: A prepared data set.
        model_folder: Where the trained model goes; `model.json` is written last.
        options: What to train and how.

    Returns:
        What `model.json` says.

    Raises:
        TpuPipelinesError: one of its kinds, if data, options, machine or model don't go together, or training diverges.
    """
    _check_reachable(options, dataset_folder, model_folder)

    # Input
    manifest = manifests.load(dataset_folder)
    reader.check(manifest, dataset_folder)
    class_weights = in_order_of_logits(options.class_weights, manifest.class_names)
    examples = manifest.split("train").examples
    steps_per_epoch = whole_steps(examples, options.global_batch_size)
    log.info(
        "%s examples, %s steps an epoch, %d left out of each",
        *(f"{examples:,}", f"{steps_per_epoch:,}", examples % options.global_batch_size),
    )
    _check_tokenizer(manifest, options)

    # Machine
    strategy = strategies.connect(options.device, options.replicas, options.tpu)
    strategies.check(strategy, options.replicas)

    # Model and optimizer
    model, optimizer = make_model(
        strategy,
        options,
        manifest.features,
        len(manifest.class_names),
        total_steps=options.epochs * steps_per_epoch,
    )
    with strategy.scope():
        checkpoints = Checkpoints(options.checkpoint_dir, model, optimizer, _identity(options, manifest))
    log.info("%s: %s parameters", options.builder, f"{model.count_params():,}")

    # Restart: from the newest checkpoint of this run, else from the start
    first_step = checkpoints.restore()
    history = _History(files.join(options.checkpoint_dir, saved.HISTORY), first_step // steps_per_epoch)

    # What happens beside the steps
    scalars = tf.summary.create_file_writer(_log_folder(model_folder))
    validate = Validation(
        strategy=strategy,
        model=model,
        folder=dataset_folder,
        manifest=manifest,
        replica_batch_size=options.replica_batch_size,
    )

    def finish_epoch(epoch: int, figures: Figures) -> None:
        step = int(optimizer.iterations.numpy())
        validation = validate()
        stop_on_nan(step, {"loss": validation["validation_loss"]})
        history.add(epoch, step, float(optimizer.learning_rate.numpy()), {**figures, **validation})
        write_scalars(scalars, step, "epoch", {**figures, **validation})
        best = checkpoints.save_if_best(validation["validation_loss"])
        checkpoints.save()
        log.info(
            "epoch %d/%d: loss %.4f, accuracy %.4f, validation loss %.4f, accuracy %.4f%s",
            *(epoch + 1, options.epochs, figures["loss"], figures["accuracy"]),
            *(validation["validation_loss"], validation["validation_accuracy"], " (best so far)" if best else ""),
        )

    actions = Actions(
        after_execution=(
            stop_on_nan,
            ShowProgress(
                epochs=options.epochs, steps_per_epoch=steps_per_epoch, global_batch_size=options.global_batch_size
            ),
            WriteScalars(scalars),
            *(
                [SaveWithinEpoch(checkpoints, options.checkpoint_every_steps, steps_per_epoch)]
                if options.checkpoint_every_steps
                else []
            ),
        ),
        after_epoch=(finish_epoch,),
    )

    # Loop
    loop = make_loop(strategy, options, model, optimizer)
    for epochs, skip_steps in _segments(first_step, steps_per_epoch, options.epochs):

        def batches(pipelines: int, index: int, epochs: range = epochs, skip_steps: int = skip_steps) -> Any:
            return reader.training_data(
                dataset_folder,
                manifest,
                replica_batch_size=options.replica_batch_size,
                replicas=options.replicas,
                seed=options.seed,
                epochs=epochs,
                skip_steps=skip_steps,
                class_weights=class_weights,
                pipelines=pipelines,
                index=index,
            )

        data = distribute(strategy, batches)
        loop.run(data, epochs=epochs, steps_per_epoch=steps_per_epoch - skip_steps, actions=actions)
    scalars.close()

    # The best model, for the steps that follow
    best_step = checkpoints.restore_best()
    best = history.of_step(best_step)
    files.make_directory(model_folder)
    model.save_weights(files.join(model_folder, saved.WEIGHTS))
    tf.train.Checkpoint(model=model).write(files.join(model_folder, saved.BEST_CHECKPOINT))
    history.save(files.join(model_folder, saved.HISTORY))
    if manifest.tokenizer:
        files.copy_tree(files.join(dataset_folder, saved.TOKENIZER), files.join(model_folder, saved.TOKENIZER))
    saved.save_reference(model_folder, _reference(model, dataset_folder, manifest))
    result = ModelDescription(
        task=manifest.task,
        builder=options.builder,
        arguments=_rebuild_arguments(model, options),
        class_names=manifest.class_names,
        features=manifest.features,
        tokenizer=manifest.tokenizer,
        precision=options.precision,
        step=best_step,
        metric={"loss": best["validation_loss"], "accuracy": best["validation_accuracy"]},
        dataset_digest=manifest.digest,
    )
    result.save(model_folder)
    log.info("best: step %d, validation accuracy %.4f", best_step, best["validation_accuracy"])
    return result


def _check_reachable(options: TrainOptions, *folders: str) -> None:
    """Refuses local folders where the replicas are on another machine, before a TPU is asked for."""
    if options.device != "tpu" or options.tpu == "local":
        return
    for folder in (*folders, options.checkpoint_dir):
        if not files.is_remote(folder):
            raise ConfigError(
                f"{folder} is on this machine, where the TPU {options.tpu!r} can't reach it; use gs:// folders, or "
                "machine.tpu local on the TPU's own host."
            )


def _check_tokenizer(manifest: Manifest, options: TrainOptions) -> None:
    if manifest.tokenizer and options.pretrained != manifest.tokenizer.name:
        raise ConfigError(
            f"model.pretrained is {options.pretrained!r}, but the data set's tokens are {manifest.tokenizer.name!r}'s: "
            "its token ids would mean other words; prepare the data again, or set model.pretrained to that."
        )


def _segments(first_step: int, steps_per_epoch: int, epochs: int) -> list[tuple[range, int]]:
    """Returns what is left to train: the rest of a begun epoch, then the whole ones, each with the steps to skip."""
    epoch, skip = divmod(first_step, steps_per_epoch)
    begun = [(range(epoch, epoch + 1), skip)] if skip else []
    whole = range(epoch + bool(skip), epochs)
    return begun + ([(whole, 0)] if whole else [])


def _identity(options: TrainOptions, manifest: Manifest) -> dict[str, Any]:
    """Returns what must be equal for a restart to be the same run. Where it runs may differ."""
    settings = asdict(options)
    for name in (
        "checkpoint_dir",
        "device",
        "replicas",
        "tpu",
        "loop",
        "steps_per_execution",
        "checkpoint_every_steps",
    ):
        del settings[name]
    return {**settings, "dataset_digest": manifest.digest}


def _log_folder(model_folder: str) -> str:
    """Returns where TensorBoard's files go: Vertex AI says so where it shows them live."""
    return os.environ.get("AIP_TENSORBOARD_LOG_DIR") or files.join(model_folder, "logs")


def _rebuild_arguments(model: Any, options: TrainOptions) -> dict[str, Any]:
    if options.builder == "text_classifier":
        return text_classifier.rebuild_arguments(model)
    return builder_arguments(options)


def _reference(model: Any, folder: str, manifest: Manifest) -> np.ndarray:
    """Returns the trained model's probabilities for the first test examples, float32 `[examples, classes]`."""
    count = min(saved.REFERENCE_EXAMPLES, manifest.split("test").examples)
    data = reader.evaluation_data(folder, manifest, "test", batch_size=count, limit=count)
    ((features, _),) = data
    return tf.nn.softmax(model(reader.to_model_input(features), training=False)).numpy()


class _History:
    """The figures of each epoch, kept beside the checkpoints so that a restarted run's history is whole.

    Args:
        uri: The file.
        epochs: Whole epochs that are done; what the file says of later ones is dropped.
    """

    def __init__(self, uri: str, epochs: int) -> None:
        self._uri = uri
        kept = files.read_json(uri)["epochs"] if epochs and files.exists(uri) else []
        self._epochs: list[dict[str, float]] = kept[:epochs]
        self._start = time.monotonic()

    def add(self, epoch: int, step: int, learning_rate: float, figures: Figures) -> None:
        """Adds an epoch (from 0) and writes the file."""
        now = time.monotonic()
        entry = {"epoch": epoch + 1, "step": step, "learning_rate": learning_rate, "seconds": now - self._start}
        self._epochs.append({**entry, **figures})
        self._start = now
        self.save(self._uri)

    def save(self, uri: str) -> None:
        """Writes the history to a file."""
        files.write_json(uri, {"epochs": self._epochs})

    def of_step(self, step: int) -> dict[str, float]:
        """Returns the epoch that ended at a step."""
        for entry in self._epochs:
            if entry["step"] == step:
                return entry
        raise ModelError(f"{self._uri} has no epoch that ended at step {step}, the best checkpoint's; train again.")
