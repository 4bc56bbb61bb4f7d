"""Validation on the replicas: every example of the split counts once, whatever the batch and the replicas."""

from typing import Any

import tensorflow as tf

from components.dataset import reader
from components.dataset.manifest import Manifest
from components.train.inputs import distribute
from components.train.loss import correct, per_example_loss


class Validation:
    """Computes mean loss and accuracy over the validation split.

    Args:
        strategy: The strategy in whose scope the model was made.
        model: Takes a dict of features, returns float32 logits.
        folder: The data set's folder.
        manifest: Its manifest.
        replica_batch_size: Examples that one replica takes at a time.
    """

    def __init__(self, *, strategy: Any, model: Any, folder: str, manifest: Manifest, replica_batch_size: int) -> None:
        replicas = strategy.num_replicas_in_sync
        self._strategy, self._model = strategy, model
        self._examples = manifest.split("validation").examples
        self._steps = -(-self._examples // (replica_batch_size * replicas))
        data = distribute(
            strategy,
            lambda pipelines, index: reader.padded_data(
                folder,
                manifest,
                "validation",
                replica_batch_size=replica_batch_size,
                replicas=replicas,
                pipelines=pipelines,
                index=index,
            ),
        )
        self._iterator = iter(data)  # endless: one iterator serves every epoch

    def __call__(self) -> dict[str, float]:
        """Returns `validation_loss` and `validation_accuracy`, means over the split's examples."""
        totals = self._totals(self._iterator).numpy()
        return {
            "validation_loss": float(totals[0] / self._examples),
            "validation_accuracy": float(totals[1] / self._examples),
        }

    @tf.function
    def _totals(self, iterator: Any) -> Any:
        """Returns the sums of loss and correct answers over one pass, float32 `[2]`."""
        totals = tf.zeros([2])
        for _ in tf.range(self._steps):
            replica_totals = self._strategy.run(self._step, args=(next(iterator),))
            totals += self._strategy.reduce(tf.distribute.ReduceOp.SUM, replica_totals, axis=None)
        return totals

    def _step(self, batch: tuple[Any, Any, Any]) -> Any:
        features, labels, weights = batch
        logits = self._model(features, training=False)
        return tf.stack(
            [
                tf.reduce_sum(weights * per_example_loss(labels, logits)),
                tf.reduce_sum(weights * correct(labels, logits)),
            ]
        )
