"""What the tests of the stand-ins run in a child process: `python -m tests.standins.clients FUNCTION ...`."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras

from components import files, step
from components.models import saved


def component_files() -> None:
    """Every function of `components.files`, on a bucket."""
    folder = "gs://bucket/files"
    files.make_directory(folder)
    assert files.exists(folder)
    assert not files.exists("gs://bucket/missing")
    large = bytes(range(256)) * 8192  # 2 MiB
    for name, content in (("a/one.bin", large), ("a/b/two.txt", b"two"), ("a/empty", b""), ("x.json", b"{}")):
        files.write_bytes(files.join(folder, name), content)
        assert files.size(files.join(folder, name)) == len(content)
        assert files.read_bytes(files.join(folder, name)) == content
    files.write_json(f"{folder}/x.json", {"größe": [1, 2.5, None]})
    assert files.read_json(f"{folder}/x.json") == {"größe": [1, 2.5, None]}
    names = ["a/b/two.txt", "a/empty", "a/one.bin", "x.json"]
    assert sorted(files.walk(folder)) == [f"{folder}/{name}" for name in names], list(files.walk(folder))
    assert files.glob(f"{folder}/a/*e*") == [f"{folder}/a/empty", f"{folder}/a/one.bin"]
    assert files.glob(f"{folder}/nothing/*") == []
    with tempfile.TemporaryDirectory() as local:
        files.copy_tree(folder, local)
        assert Path(local, "a/one.bin").read_bytes() == large
        assert Path(local, "a/empty").read_bytes() == b""
        files.copy_tree(local, "gs://bucket/back/")
    assert sorted(files.walk("gs://bucket/back")) == [f"gs://bucket/back/{name}" for name in names]
    try:
        with files.new_directory("gs://bucket/new") as new:
            files.write_bytes(files.join(new, "part"), b"1")
            raise KeyError
    except KeyError:
        pass
    # Not by `exists`: where the answer to a removal is lost, TensorFlow keeps what it knew of the folder for 5 seconds.
    assert list(files.walk("gs://bucket/new")) == []
    with files.new_directory("gs://bucket/back") as new:
        files.write_bytes(files.join(new, "only"), b"1")
    assert list(files.walk("gs://bucket/back")) == ["gs://bucket/back/only"]
    files.remove_tree(folder)
    files.remove_tree(folder)
    assert list(files.walk(folder)) == []


def errors() -> None:
    """What is not there fails as a local file does, and a step says so in one sentence."""
    for uri in ("gs://bucket/missing", "gs://no-such-bucket/x"):
        for read in (files.read_bytes, files.size):
            try:
                read(uri)
            except FileNotFoundError as error:
                assert error.filename == uri
            else:
                raise AssertionError(uri)
    try:
        with step.running("prepare", dataset="gs://no-such-bucket/run/prepare/dataset"):
            raise AssertionError("the body must not run")
    except SystemExit as ended:
        assert ended.code == 1


def records() -> None:
    """TFRecord files, written one after another and read by tf.data, several at once."""
    uris = [f"gs://bucket/records/{shard}.tfrecord" for shard in range(4)]
    for shard, uri in enumerate(uris):
        with tf.io.TFRecordWriter(uri) as writer:
            for number in range(100):
                writer.write(b"%d" % (shard * 100 + number))
    data = tf.data.Dataset.from_tensor_slices(uris).interleave(
        tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=4
    )
    assert sorted(int(record.numpy()) for record in data) == list(range(400))


def checkpoints() -> None:
    """A checkpoint manager that keeps two, and another process's view of what it left."""
    variable = tf.Variable(tf.zeros([1000]))
    checkpoint = tf.train.Checkpoint(variable=variable)
    manager = tf.train.CheckpointManager(checkpoint, "gs://bucket/checkpoints", max_to_keep=2)
    for number in (1, 2, 3):
        variable.assign_add(tf.ones([1000]))
        manager.save(checkpoint_number=number)
    assert [path.rpartition("/")[2] for path in manager.checkpoints] == ["ckpt-2", "ckpt-3"]
    again = tf.Variable(tf.zeros([1000]))
    path = tf.train.latest_checkpoint("gs://bucket/checkpoints")
    tf.train.Checkpoint(variable=again).restore(path).assert_consumed()
    assert again.numpy().tolist() == [3.0] * 1000


def models() -> None:
    """A SavedModel, Keras weights (HDF5, which Keras sends by way of the disk), scalars for TensorBoard."""
    model = tf_keras.Sequential([tf_keras.layers.Dense(3, input_shape=(2,))])
    rows = np.ones([4, 2], np.float32)
    expected = model(rows).numpy()
    tf.saved_model.save(model, "gs://bucket/exported")
    loaded = tf.saved_model.load("gs://bucket/exported")
    np.testing.assert_array_equal(loaded.signatures["serving_default"](tf.constant(rows))["dense"], expected)
    model.save_weights("gs://bucket/model/weights.h5")
    saved.save_reference("gs://bucket/model", expected)
    np.testing.assert_array_equal(saved.load_reference("gs://bucket/model"), expected)
    other = tf_keras.Sequential([tf_keras.layers.Dense(3, input_shape=(2,))])
    other.load_weights("gs://bucket/model/weights.h5")
    np.testing.assert_array_equal(other(rows), expected)
    with tf.summary.create_file_writer("gs://bucket/logs").as_default():
        for step in range(3):
            tf.summary.scalar("loss", float(step), step=step)
            tf.summary.flush()
    (log,) = files.walk("gs://bucket/logs")
    events = [event.step for event in tf.compat.v1.train.summary_iterator(log) if event.summary.value]
    assert events == [0, 1, 2]


def storage_client() -> None:
    """Google's own Python client, with credentials from its own search for them."""
    from google.cloud import storage

    bucket = storage.Client().bucket("bucket")
    for number in range(3):
        bucket.blob(f"client/{number}.txt").upload_from_string(f"number {number}")
    names = [blob.name for blob in bucket.list_blobs(prefix="client/")]
    assert names == ["client/0.txt", "client/1.txt", "client/2.txt"]
    assert bucket.blob("client/2.txt").download_as_bytes() == b"number 2"
    assert tf.io.gfile.GFile("gs://bucket/client/1.txt").read() == "number 1"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
        print(name, "done", flush=True)
