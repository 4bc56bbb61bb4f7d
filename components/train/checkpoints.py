"""What a restart needs, saved together: weights, optimizer, best metric and the dropout generators' states.

The position in the data and the learning rate follow from the optimizer's step, so they can't disagree with it.
"""

from typing import Any

import tensorflow as tf

from components import files
from components.errors import ConfigError, ModelError, first_line
from components.models import saved
from components.step import log

KEPT = 5
RUN_FILE = "run.json"


class Checkpoints:
    """The newest checkpoints of a run, and its best one apart.

    Args:
        folder: Where they are kept. A start deletes nothing there; saving keeps the newest five.
        model: The built model.
        optimizer: The built optimizer, whose `iterations` is the step.
        identity: What makes two runs the same run (settings, data); a folder of another run is refused.

    Raises:
        ConfigError: if `folder` holds the checkpoints of a run with another identity.
    """

    def __init__(self, folder: str, model: Any, optimizer: Any, identity: dict[str, Any]) -> None:
        self._best_loss = tf.Variable(float("inf"), dtype=tf.float32, trainable=False)
        self._best_step = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._step = optimizer.iterations
        self._folder, self._model, self._saved_step = folder, model, 0
        self._checkpoint = tf.train.Checkpoint(
            model=model,
            optimizer=optimizer,
            best_loss=self._best_loss,
            best_step=self._best_step,
            generators=dropout_generators(model),
        )
        _check_identity(folder, identity)
        self._newest = tf.train.CheckpointManager(self._checkpoint, folder, max_to_keep=KEPT)
        # Two, since a kill between the best and the newest checkpoint leaves a best that the newest doesn't know.
        self._best = tf.train.CheckpointManager(
            tf.train.Checkpoint(model=model), files.join(folder, "best"), max_to_keep=2
        )

    def restore(self) -> int:
        """Restores the newest checkpoint that is whole, if there is one.

        Returns:
            The optimizer step that training goes on from; 0 for a new run.

        Raises:
            ModelError: if there are checkpoints, and none fits the model and optimizer.
        """
        reason = ""
        for path in reversed(self._newest.checkpoints):
            try:
                self._checkpoint.restore(path).assert_existing_objects_matched()
            except saved.RESTORE_ERRORS as error:  # cut by the kill, say: the one before costs a few steps more
                reason = first_line(error)
                log.warning("checkpoint %s does not restore (%s)", path, reason)
                continue
            self._saved_step = int(self._step.numpy())
            log.info("resumed from %s at step %d", path, self._saved_step)
            return self._saved_step
        if reason:
            raise ModelError(
                f"No checkpoint in {self._folder} restores this run ({reason}); give an empty training.checkpoint_dir."
            )
        return 0

    def save(self) -> None:
        """Saves everything, named by the optimizer's step, unless that step is saved already."""
        step = int(self._step.numpy())
        if step != self._saved_step:
            self._newest.save(checkpoint_number=step)
            self._saved_step = step

    def save_if_best(self, loss: float) -> bool:
        """Saves the weights apart if the validation loss is the lowest of the run; says whether it was."""
        if loss >= float(self._best_loss.numpy()):
            return False
        self._best_loss.assign(loss)
        self._best_step.assign(int(self._step.numpy()))
        self._best.save(checkpoint_number=int(self._step.numpy()))
        return True

    def restore_best(self) -> int:
        """Gives the model the best weights; returns the step that they are from."""
        step = int(self._best_step.numpy())
        best = files.join(self._folder, "best", f"ckpt-{step}")
        try:
            tf.train.Checkpoint(model=self._model).restore(best).assert_existing_objects_matched().expect_partial()
        except saved.RESTORE_ERRORS as error:
            reason = first_line(error)
            raise ModelError(f"The best checkpoint {best} does not restore ({reason}); train again.") from error
        return step


def dropout_generators(model: Any) -> list[Any]:
    """Returns the random generators of a model's dropout layers, initialised, in the order of its layers.

    They exist because `enable_tf_random_generator` was called before the model was built; without them a restart could
    not draw the masks that the unbroken run would have drawn.
    """
    generators = []
    for layer in model._flatten_layers():
        random = getattr(layer, "_random_generator", None)
        if random is not None:
            random._maybe_init()
            if random._generator is not None:
                generators.append(random._generator)
    return generators


def _check_identity(folder: str, identity: dict[str, Any]) -> None:
    uri = files.join(folder, RUN_FILE)
    if not files.exists(uri):
        files.make_directory(folder)
        files.write_json(uri, identity)
        return
    found = files.read_json(uri)
    changed = sorted(name for name in identity.keys() | found.keys() if identity.get(name) != found.get(name))
    if changed:
        name = changed[0]
        raise ConfigError(
            f"training.checkpoint_dir {folder} holds a run with other settings ({', '.join(changed)}; {name} was "
            f"{found.get(name)!r}, is {identity.get(name)!r}); restart with the same settings, or in an empty folder."
        )
