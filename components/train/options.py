"""The options of the training step."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from components.errors import ConfigError

LOOPS = ("fit", "custom")
OPTIMIZERS = ("adam", "adamw")
DECAYS = ("constant", "linear", "cosine")
PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """What to train and how.

    Attributes:
        builder: A name that `components.models.registry` knows.
        arguments: The builder's arguments.
        pretrained: Where a text classifier's encoder is; empty for a model that starts from scratch.
        loop: `fit` or `custom`.
        epochs: Passes over the training split.
        global_batch_size: Examples of one step, over all replicas.
        optimizer: `adam` or `adamw`.
        learning_rate: Peak learning rate, after the warm-up.
        warmup_fraction: Share of all steps in which the learning rate rises from zero.
        decay: `constant`, `linear` or `cosine`: how it falls to zero at the last step.
        weight_decay: Decoupled weight decay of adamw.
        clip_norm: Largest global norm of the gradients; 0 for no clipping.
        precision: `float32` or `bfloat16`: the computations' type. Variables, logits and loss are float32.
        steps_per_execution: Steps inside one call of the compiled training function.
        class_weights: Weight of the loss by class name or index, 1 for a class that isn't named.
        checkpoint_every_steps: Steps between checkpoints within an epoch; 0 for the end of each epoch only.
        checkpoint_dir: Where checkpoints are kept; a restarted run resumes from the newest one there.
        seed: Seed of weights, shuffle and dropout.
        device: `cpu`, `gpu` or `tpu`.
        replicas: Replicas that the machine promises.
        tpu: How to reach a TPU: `local`, a name or a grpc address.

    Raises:
        ConfigError: from the constructor, naming the option and what it takes.
    """

    builder: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    pretrained: str = ""
    loop: str = "fit"
    epochs: int
    global_batch_size: int
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    warmup_fraction: float = 0.0
    decay: str = "constant"
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    precision: str = "float32"
    steps_per_execution: int = 1
    class_weights: Mapping[str, float] = field(default_factory=dict)
    checkpoint_every_steps: int = 0
    checkpoint_dir: str
    seed: int = 0
    device: str = "cpu"
    replicas: int = 1
    tpu: str = "local"

    def __post_init__(self) -> None:
        for name, known in (
            ("loop", LOOPS),
            ("optimizer", OPTIMIZERS),
            ("decay", DECAYS),
            ("precision", PRECISIONS),
            ("device", ("cpu", "gpu", "tpu")),
        ):
            if (value := getattr(self, name)) not in known:
                raise ConfigError(f"training.{name} is {value!r}, expected one of {', '.join(known)}.")
        for name in ("epochs", "global_batch_size", "steps_per_execution", "replicas"):
            if (value := getattr(self, name)) < 1:
                raise ConfigError(f"training.{name} is {value}, expected at least 1.")
        for name in ("weight_decay", "clip_norm", "checkpoint_every_steps", "seed"):
            if not (value := getattr(self, name)) >= 0:
                raise ConfigError(f"training.{name} is {value}, expected at least 0.")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"training.learning_rate is {self.learning_rate}, expected a number above 0.")
        if not 0 <= self.warmup_fraction < 1:
            raise ConfigError(f"training.warmup_fraction is {self.warmup_fraction}, expected from 0 up to, without, 1.")
        if set(self.checkpoint_dir) & set("[]*?"):
            raise ConfigError(
                f"training.checkpoint_dir {self.checkpoint_dir} has one of [ ] * ? in it, which TensorFlow takes for a "
                "pattern; use another folder."
            )
        if self.optimizer == "adam" and self.weight_decay:
            raise ConfigError(f"training.weight_decay is {self.weight_decay:g}, but adam has none; use adamw.")
        if self.global_batch_size % self.replicas:
            raise ConfigError(
                f"training.global_batch_size is {self.global_batch_size}, expected a multiple of the {self.replicas} "
                "replicas, so that each gets the same number of examples."
            )
        if self.checkpoint_every_steps % self.steps_per_execution:
            raise ConfigError(
                f"training.checkpoint_every_steps is {self.checkpoint_every_steps}, expected a multiple of "
                f"training.steps_per_execution ({self.steps_per_execution}): nothing can be saved within a call."
            )

    @property
    def replica_batch_size(self) -> int:
        """Examples that one replica gets in one step."""
        return self.global_batch_size // self.replicas
