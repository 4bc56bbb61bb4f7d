"""The KFP interface of the prepare step."""

from kfp import dsl

from components.images import CPU_IMAGE


@dsl.component(base_image=CPU_IMAGE, packages_to_install=[], install_kfp_package=False)
def prepare(
    source: str,
    text_column: str,
    label_column: str,
    encoding: str,
    tfds_data_dir: str,
    tfds_feature: str,
    try_gcs: bool,
    train_split: str,
    test_split: str,
    sample_fraction: float,
    validation_fraction: float,
    test_fraction: float,
    split_seed: int,
    empty_rows: str,
    max_length: int,
    shard_megabytes: int,
    pretrained: str,
    source_fingerprint: str,
    dataset: dsl.Output[dsl.Dataset],
) -> None:
    """Turns a source of labelled texts or images into TFRecord shards and a manifest.

    Args:
        source: sample://NAME, tfds://NAME, or a path or gs:// URI (globs too) of .csv, .tsv or .jsonl files.
        text_column: Column or key of the text, in files.
        label_column: Column or key of the label, in files.
        encoding: Encoding of files; a byte-order mark is accepted.
        tfds_data_dir: Folder or gs:// URI of prepared TensorFlow Datasets; empty for its default.
        tfds_feature: Text or image key of a tfds data set that has several, else empty.
        try_gcs: Let tfds read the data set from Google's public bucket.
        train_split: The tfds split, or slice of it, to train on.
        test_split: The tfds split to test on; empty to take it from the training split.
        sample_fraction: Share of the examples to keep, chosen by their content.
        validation_fraction: Share of the training examples held out for validation.
        test_fraction: Share held out for the test, where the source has no test split.
        split_seed: Seed of the hash that splits the examples by content.
        empty_rows: drop (and count) rows that have no text or no label, or stop with an error.
        max_length: Tokens of a text, padding and special tokens included.
        shard_megabytes: Size of a TFRecord shard, in 10^6 bytes.
        pretrained: Model whose tokenizer a text source needs: folder, gs:// folder, sample://minilm or hub name.
        source_fingerprint: Fingerprint of the source's files, so that a cached data set is of these very files.
        dataset: The data set: shards of the splits train, validation and test, and manifest.json.
    """
    from components import step

    with step.running("prepare", dataset=dataset.uri) as run:
        from components.prepare.prepare import PrepareSettings, prepare

        settings = PrepareSettings(
            source=source,
            text_column=text_column,
            label_column=label_column,
            encoding=encoding,
            tfds_data_dir=tfds_data_dir,
            tfds_feature=tfds_feature,
            try_gcs=try_gcs,
            train_split=train_split,
            test_split=test_split,
            sample_fraction=sample_fraction,
            validation_fraction=validation_fraction,
            test_fraction=test_fraction,
            split_seed=split_seed,
            empty_rows=empty_rows,
            max_length=max_length,
            shard_megabytes=shard_megabytes,
            pretrained=pretrained,
        )
        manifest = prepare(settings, dataset.uri)
        examples = {name: split.examples for name, split in manifest.splits.items()}
        run.report(examples=examples, dropped=manifest.dropped, class_names=list(manifest.class_names))
        dataset.metadata.update(
            task=manifest.task,
            class_names=list(manifest.class_names),
            examples=examples,
            source=manifest.source,
            fingerprint=manifest.fingerprint,
            source_fingerprint=source_fingerprint,
        )
