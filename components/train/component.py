"""The KFP interface of the train step."""

from kfp import dsl

from components.images import TPU_IMAGE


@dsl.component(base_image=TPU_IMAGE, packages_to_install=[], install_kfp_package=False)
def train(
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
    steps_per_execution: int,
    class_weights: dict,
    checkpoint_every_steps: int,
    checkpoint_dir: str,
    seed: int,
    device: str,
    replicas: int,
    tpu: str,
    model: dsl.Output[dsl.Model],
) -> None:
    """Trains a model on the replicas of one machine and keeps the best of its epochs.

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
        steps_per_execution: Steps inside one call of the compiled training function.
        class_weights: Weight of the loss by class name or index.
        checkpoint_every_steps: Steps between checkpoints within an epoch; 0 for each epoch's end only.
        checkpoint_dir: Folder or gs:// URI of the checkpoints; empty: below the model.
        seed: Seed of weights, shuffle and dropout.
        device: cpu, gpu or tpu.
        replicas: Replicas that the machine promises.
        tpu: How to reach a TPU: local, a name or a grpc address.
        model: The trained model: best checkpoint, weights, history and model.json.
    """
    import os

    from components import step

    with step.running("train", model=model.uri) as run:
        from components.train.options import TrainOptions
        from components.train.train import train

        checkpoints = checkpoint_dir or os.environ.get("AIP_CHECKPOINT_DIR") or f"{model.uri}/checkpoints"
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
            steps_per_execution=steps_per_execution,
            class_weights=class_weights,
            checkpoint_every_steps=checkpoint_every_steps,
            checkpoint_dir=checkpoints.rstrip("/"),
            seed=seed,
            device=device,
            replicas=replicas,
            tpu=tpu,
        )
        run.save(checkpoints=options.checkpoint_dir)  # where a run that is cut off can be gone on with
        result = train(dataset.uri, model.uri, options)
        run.report(best_step=result.step, validation=result.metric)
        model.metadata.update(builder=builder, step=result.step, **result.metric)
