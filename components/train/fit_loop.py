"""Training by Keras `compile` and `fit`."""

from collections.abc import Mapping
from typing import Any

import tf_keras

from components.train.actions import Actions


class FitLoop:
    """Runs epochs through `model.fit`.

    Args:
        strategy: The strategy in whose scope model and optimizer were made.
        model: Takes a dict of features, returns float32 logits.
        optimizer: A tf-keras optimizer.
        steps_per_execution: Steps in one call of Keras's compiled training function.
    """

    def __init__(self, *, strategy: Any, model: Any, optimizer: Any, steps_per_execution: int) -> None:
        self._model = model
        with strategy.scope():
            model.compile(
                optimizer,
                loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                metrics=[tf_keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
                steps_per_execution=steps_per_execution,
            )

    def run(self, data: Any, *, epochs: range, steps_per_epoch: int, actions: Actions) -> None:
        """Trains for some epochs.

        Args:
            data: A distributed data set with at least `len(epochs) * steps_per_epoch` global batches.
            epochs: The epochs' numbers.
            steps_per_epoch: Steps of each.
            actions: Called as the loop goes.
        """
        # One call for all epochs: Keras then keeps one iterator over the data, whose epochs follow each other in it.
        self._model.fit(
            data,
            initial_epoch=epochs.start,
            epochs=epochs.stop,
            steps_per_epoch=steps_per_epoch,
            verbose=0,
            callbacks=[_CallActions(actions)],
        )

    def step(self, batch: tuple[Any, ...]) -> None:
        """Trains one replica on its batch: features, labels, and maybe weights. This is what `fit` runs on each."""
        self._model.train_step(batch)


class _CallActions(tf_keras.callbacks.Callback):
    """Hands Keras's events on to the actions, with the optimizer's own step."""

    def __init__(self, actions: Actions) -> None:
        super().__init__()
        self._actions = actions

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float]) -> None:
        """Called by Keras once per execution, whatever its number of steps."""
        step = int(self.model.optimizer.iterations.numpy())
        for action in self._actions.after_execution:
            action(step, _figures(logs))

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float]) -> None:
        """Called by Keras after an epoch's last step."""
        for action in self._actions.after_epoch:
            action(epoch, _figures(logs))


def _figures(logs: Mapping[str, float]) -> dict[str, float]:
    return {"loss": float(logs["loss"]), "accuracy": float(logs["accuracy"])}
