"""The training step as a whole: both loops, any number of replicas, and restarts."""

import dataclasses
import hashlib
import json
import logging

import numpy as np
import pytest
import tensorflow as tf

from components import files
from components.dataset import manifest as manifests
from components.dataset import reader
from components.errors import ConfigError, DataError, ModelError
from components.models import saved
from components.train import train as train_module
from components.train.actions import Actions
from components.train.custom_loop import CustomLoop
from components.train.fit_loop import FitLoop
from components.train.optimizer import make_optimizer
from components.train.options import TrainOptions
from components.train.strategy import connect
from components.train.train import train

SMALL = {"filters": [4], "dense_units": [16], "dropout": 0.0}


def options(tmp_path, **changes):
    defaults = {
        "builder": "image_classifier",
        "arguments": SMALL,
        "epochs": 2,
        "global_batch_size": 64,
        "learning_rate": 3e-3,
        "steps_per_execution": 5,
        "checkpoint_dir": str(tmp_path / "checkpoints"),
    }
    return TrainOptions(**{**defaults, **changes})


def weights(folder):
    """Returns every weight of a trained model's best checkpoint, in one row."""
    variables = saved.load(folder).restore(folder).weights
    return np.concatenate([variable.numpy().ravel() for variable in variables])


class KilledError(Exception):
    """Stands for the end of the process at a certain step."""


def kill_at(step):
    def action(now, figures):
        if now >= step:
            raise KilledError

    return action


def train_and_be_killed(dataset, folder, run, step, monkeypatch):
    """Trains until a step, then leaves as a killed process does: with what is on disk and nothing else."""
    with monkeypatch.context() as patch:
        patch.setattr(train_module, "stop_on_nan", kill_at(step))
        with pytest.raises(KilledError):
            train(dataset, folder, run)


def kill_after(call, times):
    """Wraps a method so that the process "dies" right after its n-th call has done its work."""
    count = 0

    def wrapped(*arguments, **options):
        nonlocal count
        result = call(*arguments, **options)
        count += 1
        if count == times:
            raise KilledError
        return result

    return wrapped


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["fit", "custom"])
def test_eight_replicas_learn_and_leave_a_complete_model(loop, stripes_dataset, tmp_path):
    folder = str(tmp_path / "model")

    result = train(stripes_dataset, folder, options(tmp_path, loop=loop, replicas=8, epochs=6))

    assert result.metric["accuracy"] > 0.9
    assert result.class_names == ("row", "column", "none")
    for name in ("model.json", "weights.h5", "history.json", "reference.npz", "best/ckpt.index"):
        assert (tmp_path / "model" / name).exists(), name
    history = json.loads((tmp_path / "model" / "history.json").read_text())["epochs"]
    assert [entry["step"] for entry in history] == [10, 20, 30, 40, 50, 60]
    best = min(history, key=lambda entry: entry["validation_loss"])
    assert (result.step, result.metric["loss"]) == (best["step"], best["validation_loss"])


def losses_of(loop_class, dataset, steps, **extra):
    """Trains one replica for some steps and returns the epoch's mean loss after each."""
    import tf_keras

    from components.models import registry

    manifest = manifests.load(dataset)
    strategy = connect("cpu", 1)
    tf_keras.utils.set_random_seed(5)
    run = TrainOptions(
        builder="image_classifier",
        epochs=5,
        global_batch_size=64,
        checkpoint_dir="",
        warmup_fraction=0.2,
        decay="cosine",
    )
    arguments = {"filters": [4], "dense_units": [16], "dropout": 0.25, "shift": 1}
    with strategy.scope():
        model = registry.build("image_classifier", arguments, manifest.features, 3)
        optimizer = make_optimizer(run, steps)
        optimizer.build(model.trainable_variables)
    loop = loop_class(strategy=strategy, model=model, optimizer=optimizer, steps_per_execution=1, **extra)
    data = strategy.distribute_datasets_from_function(
        lambda _: reader.training_data(
            dataset, manifest, replica_batch_size=64, replicas=1, seed=5, epochs=range(5), class_weights=[1.0, 2.0, 0.5]
        )
    )
    losses = []
    actions = Actions(after_execution=(lambda step, figures: losses.append(figures["loss"]),))
    loop.run(data, epochs=range(5), steps_per_epoch=steps // 5, actions=actions)
    return np.array(losses)


def test_fit_and_custom_loop_give_equal_losses(stripes_dataset):
    """50 steps, one replica, same seed, with dropout, random shifts, class weights, warm-up and decay."""
    import tf_keras

    tf_keras.src.backend.enable_tf_random_generator()

    fit = losses_of(FitLoop, stripes_dataset, 50)
    custom = losses_of(CustomLoop, stripes_dataset, 50, global_batch_size=64)

    assert len(fit) == 50
    np.testing.assert_allclose(fit, custom, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["fit", "custom"])
def test_any_number_of_replicas_gives_the_same_weights(loop, stripes_dataset, tmp_path):
    """20 steps of the same global batch, no dropout."""
    found = {}
    for replicas in (1, 2, 4, 8):
        folder = tmp_path / str(replicas)
        run = options(folder, loop=loop, replicas=replicas, clip_norm=1.0, class_weights={"row": 2.0})
        train(stripes_dataset, str(folder / "model"), run)
        found[replicas] = weights(str(folder / "model"))

    for replicas in (2, 4, 8):
        difference = np.linalg.norm(found[replicas] - found[1]) / np.linalg.norm(found[1])
        assert difference < 1e-4, f"{replicas} replicas differ by {difference:.2g}"


@pytest.mark.slow
@pytest.mark.parametrize(("loop", "killed_at"), [("fit", 25), ("custom", 25), ("custom", 30), ("fit", 60)])
def test_a_killed_run_resumes_to_the_weights_of_the_unbroken_run(
    loop, killed_at, stripes_dataset, tmp_path, monkeypatch
):
    """Killed within an epoch (25), at one's end (30), or at the very end (60), with dropout, decay and checkpoints."""
    changes = {
        "loop": loop,
        "replicas": 2,
        "epochs": 6,
        "arguments": {**SMALL, "dropout": 0.3, "shift": 1},
        "decay": "linear",
        "checkpoint_every_steps": 5,
    }
    unbroken = str(tmp_path / "unbroken" / "model")
    expected = train(stripes_dataset, unbroken, options(tmp_path / "unbroken", **changes))

    folder = str(tmp_path / "killed" / "model")
    run = options(tmp_path / "killed", **changes)
    train_and_be_killed(stripes_dataset, folder, run, killed_at, monkeypatch)
    assert not files.exists(files.join(folder, "model.json"))
    result = train(stripes_dataset, folder, run)

    assert result.step == expected.step
    digests = {hashlib.sha256(weights(model).tobytes()).hexdigest() for model in (unbroken, folder)}
    assert len(digests) == 1, "the resumed run has other weights than the unbroken one"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (train_module._History, "add"),
        (train_module.Checkpoints, "save_if_best"),
        (train_module.Checkpoints, "save"),
        (train_module.Validation, "__call__"),
    ],
)
def test_a_kill_between_the_writes_of_an_epochs_end_changes_nothing(
    owner, method, stripes_dataset, tmp_path, monkeypatch
):
    changes = {"epochs": 4, "checkpoint_every_steps": 5, "learning_rate": 0.03}
    expected = train(stripes_dataset, str(tmp_path / "unbroken"), options(tmp_path / "unbroken", **changes))
    run = options(tmp_path, **changes)
    with monkeypatch.context() as patch:
        patch.setattr(owner, method, kill_after(getattr(owner, method), 3))
        with pytest.raises(KilledError):
            train(stripes_dataset, str(tmp_path / "model"), run)

    result = train(stripes_dataset, str(tmp_path / "model"), run)

    assert result == expected
    np.testing.assert_array_equal(weights(str(tmp_path / "model")), weights(str(tmp_path / "unbroken")))
    steps = [entry["step"] for entry in json.loads((tmp_path / "model" / "history.json").read_text())["epochs"]]
    assert steps == [10, 20, 30, 40]


@pytest.mark.slow
def test_data_that_is_split_otherwise_is_another_run(stripes_dataset, tmp_path):
    train(stripes_dataset, str(tmp_path / "model"), options(tmp_path, epochs=1))
    manifest = manifests.load(stripes_dataset)
    swapped = {**manifest.splits, "train": manifest.splits["test"], "test": manifest.splits["train"]}
    other = tmp_path / "other"
    files.copy_tree(stripes_dataset, str(other))
    dataclasses.replace(manifest, splits=swapped).save(str(other))

    with pytest.raises(ConfigError, match=r"other settings \(dataset_digest"):
        train(str(other), str(tmp_path / "again"), options(tmp_path, epochs=1))


@pytest.mark.slow
def test_a_damaged_checkpoint_costs_the_steps_to_the_one_before(stripes_dataset, tmp_path, monkeypatch):
    run = options(tmp_path, epochs=4)
    expected = train(stripes_dataset, str(tmp_path / "unbroken"), options(tmp_path / "unbroken", epochs=4))
    train_and_be_killed(stripes_dataset, str(tmp_path / "model"), run, 25, monkeypatch)
    (newest,) = (tmp_path / "checkpoints").glob("ckpt-20.data-*")
    newest.write_bytes(newest.read_bytes()[:50])

    result = train(stripes_dataset, str(tmp_path / "model"), run)

    assert result == expected
    np.testing.assert_array_equal(weights(str(tmp_path / "model")), weights(str(tmp_path / "unbroken")))
    assert newest.stat().st_size > 50


@pytest.mark.slow
def test_the_best_checkpoint_survives_a_restart_that_gets_worse(stripes_dataset, tmp_path, monkeypatch):
    folder = str(tmp_path / "model")
    run = options(tmp_path, epochs=4)
    train_and_be_killed(stripes_dataset, folder, run, 25, monkeypatch)
    manifest = manifests.load(stripes_dataset)
    with monkeypatch.context() as patch:  # from here on, every epoch validates badly
        patch.setattr(
            train_module.Validation, "__call__", lambda self: {"validation_loss": 9.0, "validation_accuracy": 0.0}
        )
        result = train(stripes_dataset, folder, run)

    assert result.step == 20
    assert result.metric["loss"] < 9.0
    assert result.dataset_digest == manifest.digest


def test_another_run_in_the_same_checkpoint_folder_is_refused(stripes_dataset, tmp_path):
    train(stripes_dataset, str(tmp_path / "model"), options(tmp_path, epochs=1))
    before = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())

    with pytest.raises(ConfigError, match=r"other settings \(learning_rate; learning_rate was 0.003, is 0.01\)"):
        train(stripes_dataset, str(tmp_path / "again"), options(tmp_path, epochs=1, learning_rate=0.01))

    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == before


@pytest.mark.slow
def test_checkpoints_are_named_by_the_optimizer_step_and_five_are_kept(stripes_dataset, tmp_path):
    run = options(tmp_path, epochs=3, steps_per_execution=4, checkpoint_every_steps=4)
    train(stripes_dataset, str(tmp_path / "model"), run)

    names = {path.stem for path in (tmp_path / "checkpoints").glob("ckpt-*.index")}
    # 10 steps an epoch in groups of 4, 4 and 2: saved after 4, 8, 10, 14, 18, 20, 24, 28, 30
    assert names == {"ckpt-18", "ckpt-20", "ckpt-24", "ckpt-28", "ckpt-30"}


def test_bfloat16_keeps_variables_and_logits_in_float32(stripes_dataset, tmp_path):
    result = train(stripes_dataset, str(tmp_path / "model"), options(tmp_path, precision="bfloat16", epochs=4))

    assert result.precision == "bfloat16"
    assert weights(str(tmp_path / "model")).dtype == np.float32
    assert result.metric["accuracy"] > 0.6


@pytest.mark.slow
@pytest.mark.parametrize("key", ["none", "2"])
def test_class_weight_zero_removes_a_class(key, stripes_dataset, tmp_path):
    """By its name or its index, where no class has that number for a name."""
    result = train(stripes_dataset, str(tmp_path / "model"), options(tmp_path, epochs=4, class_weights={key: 0.0}))

    model = result.restore(str(tmp_path / "model"))
    (batch,) = reader.evaluation_data(stripes_dataset, manifests.load(stripes_dataset), "test", batch_size=90)
    predicted = model(reader.to_model_input(batch[0])).numpy().argmax(axis=1)
    assert 2 not in predicted


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"global_batch_size": 641}, DataError, "640 examples and training.global_batch_size is 641"),
        ({"class_weights": {"rwo": 2.0}}, ConfigError, "names 'rwo', the data set's classes are row, column, none"),
        ({"class_weights": {"row": -1}}, ConfigError, "training.class_weights.row is -1"),
        ({"builder": "image_clasifier"}, ModelError, "Did you mean 'image_classifier'"),
        ({"arguments": {"filter": [3]}}, ModelError, "it takes filters, kernel_size, pool"),
        ({"arguments": {"filters": [3.5]}}, ModelError, r"filters\[0\] is 3.5, expected a whole number"),
    ],
)
def test_what_can_not_work_is_refused_in_one_sentence(changes, error, sentence, stripes_dataset, tmp_path):
    with pytest.raises(error, match=sentence):
        train(stripes_dataset, str(tmp_path / "model"), options(tmp_path, **changes))
    assert not (tmp_path / "model" / "model.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["fit", "custom"])
def test_tensorboard_shows_the_epochs(loop, stripes_dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("AIP_TENSORBOARD_LOG_DIR", str(tmp_path / "board"))
    train(stripes_dataset, str(tmp_path / "model"), options(tmp_path, loop=loop))

    scalars = {}
    for path in (tmp_path / "board").iterdir():
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                scalars.setdefault(value.tag, []).append(event.step)
    assert scalars["epoch/validation_loss"] == [10, 20]
    assert scalars["train/loss"] == [20]


def test_whole_numbers_that_came_as_floats_are_whole_again(stripes_dataset, tmp_path):
    arguments = {"filters": [4.0], "dense_units": [16.0], "kernel_size": 3.0}
    run = dataclasses.replace(options(tmp_path, epochs=1), arguments=arguments)
    train(stripes_dataset, str(tmp_path / "model"), run)

    model = saved.load(str(tmp_path / "model")).restore(str(tmp_path / "model"))
    assert [layer.filters for layer in model.layers if hasattr(layer, "filters")] == [4]


def test_progress_says_epoch_steps_rate_and_loss(stripes_dataset, tmp_path, caplog):
    logger = logging.getLogger("components")
    logger.setLevel(logging.INFO)
    with caplog.at_level(logging.INFO, logger="components"):
        train(stripes_dataset, str(tmp_path / "model"), options(tmp_path))

    last = [record.message for record in caplog.records if getattr(record, "event", "") == "progress"][-1]
    assert last.startswith("epoch 2/2 · 20/20 steps · ")
    assert "examples/s · loss 0." in last
