"""Training by a loop of our own: many steps inside one `tf.function`, gradients and loss over the global batch."""

from typing import Any

import tensorflow as tf
import tf_keras

from components.train.actions import Actions
from components.train.loss import correct, per_example_loss


class CustomLoop:
    """Runs epochs through `strategy.run`.

    Args:
        strategy: The strategy in whose scope model and optimizer were made.
        model: Takes a dict of features, returns float32 logits.
        optimizer: A tf-keras optimizer.
        global_batch_size: Examples of one step, over all replicas.
        steps_per_execution: Steps in one call of the compiled training function.
    """

    def __init__(
        self, *, strategy: Any, model: Any, optimizer: Any, global_batch_size: int, steps_per_execution: int
    ) -> None:
        self._strategy, self._model, self._optimizer = strategy, model, optimizer
        self._global_batch_size, self._steps_per_execution = global_batch_size, steps_per_execution
        with strategy.scope():
            self._loss, self._accuracy = tf_keras.metrics.Mean(), tf_keras.metrics.Mean()

    def run(self, data: Any, *, epochs: range, steps_per_epoch: int, actions: Actions) -> None:
        """Trains for some epochs.

        Args:
            data: A distributed data set with at least `len(epochs) * steps_per_epoch` global batches.
            epochs: The epochs' numbers.
            steps_per_epoch: Steps of each.
            actions: Called as the loop goes.
        """
        iterator = iter(data)
        for epoch in epochs:
            self._loss.reset_state()
            self._accuracy.reset_state()
            done = 0
            while done < steps_per_epoch:
                steps = min(self._steps_per_execution, steps_per_epoch - done)
                self._train_steps(iterator, tf.constant(steps))
                done += steps
                step, figures = int(self._optimizer.iterations.numpy()), self._figures()
                for action in actions.after_execution:
                    action(step, figures)
            for action in actions.after_epoch:
                action(epoch, figures)

    def _figures(self) -> dict[str, float]:
        return {"loss": float(self._loss.result()), "accuracy": float(self._accuracy.result())}

    @tf.function
    def _train_steps(self, iterator: Any, steps: Any) -> None:
        for _ in tf.range(steps):  # in the graph: the host is asked once per execution, not once per step
            self._strategy.run(self.step, args=(next(iterator),))

    def step(self, batch: tuple[Any, ...]) -> None:
        """Trains one replica on its batch: features, labels, and maybe weights.

        The loss is a share of the global batch's mean, so gradients are summed over the replicas.
        """
        features, labels, *weights = batch
        with tf.GradientTape() as tape:
            logits = self._model(features, training=True)
            losses = per_example_loss(labels, logits)
            if weights:
                losses *= weights[0]
            loss = tf.nn.compute_average_loss(losses, global_batch_size=self._global_batch_size)
            penalty = tf.nn.scale_regularization_loss(tf.add_n(self._model.losses)) if self._model.losses else 0.0
            loss += penalty
        variables = self._model.trainable_variables
        self._optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        self._loss.update_state(losses + penalty * self._strategy.num_replicas_in_sync)
        self._accuracy.update_state(correct(labels, logits))
