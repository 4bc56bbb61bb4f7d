"""The KFP interface of the lower step."""

from kfp import dsl

from components.images import CPU_IMAGE


@dsl.component(base_image=CPU_IMAGE, packages_to_install=[], install_kfp_package=False)
def lower(
    dataset: dsl.Input[dsl.Dataset],
    builder: str,
    arguments: dict,
    pretrained: str,
    loop: str,
    epochs: int,
    global_batch_size: int,
    optimizer: str,
    learning_rate: float,
    warmup_fraction: float,
    decay: str,
    weight_decay: float,
    clip_norm: float,
    precision: str,
    class_weights: dict,
    seed: int,
    replicas: int,
    program: dsl.Output[dsl.Artifact],
) -> None:
    """Writes the step that training will run as XLA's program, for the TPU's compiler.

    Args:
        dataset: A prepared data set.
        builder: image_classifier, text_classifier, or my_package.my_module:build.
        arguments: Arguments of the builder.
        pretrained: Encoder of a text classifier: folder, gs:// folder, sample://minilm or hub name.
        loop: fit (Keras) or custom.
        epochs: Passes over the training split.
        global_batch_size: Examples of one step, over all replicas.
        optimizer: adam or adamw.
        learning_rate: Peak learning rate, after the warm-up.
        warmup_fraction: Share of all steps in which the learning rate rises from zero.
        decay: constant, linear or cosine.
        weight_decay: Decoupled weight decay of adamw.
        clip_norm: Largest global norm of the gradients; 0 for no clipping.
        precision: float32 or bfloat16.
        class_weights: Weight of the loss by class name or index.
        seed: Seed of weights, shuffle and dropout.
        replicas: Replicas of the TPU.
        program: The program of one replica, and program.json.
    """
    from components import step

    with step.running("lower", program=program.uri) as run:
        from components.dataset import description
        from components.lower.lower import lower
        from components.train.options import TrainOptions

        options = TrainOptions(
            builder=builder,
            arguments=arguments,
            pretrained=pretrained,
            loop=loop,
            epochs=epochs,
            global_batch_size=global_batch_size,
            optimizer=optimizer,
            learning_rate=learning_rate,
            warmup_fraction=warmup_fraction,
            decay=decay,
            weight_decay=weight_decay,
            clip_norm=clip_norm,
            precision=precision,
            class_weights=class_weights,
            checkpoint_dir="",
            seed=seed,
            replicas=replicas,
        )
        result = lower(options, description.of(dataset.uri), program.uri)
        figures = {"parameters": result.parameters, "replicas": result.replicas}
        run.report(**figures)
        program.metadata.update(figures)
