"""The KFP interface of the fingerprint step."""

from kfp import dsl

from components.images import CPU_IMAGE


@dsl.component(base_image=CPU_IMAGE, packages_to_install=[], install_kfp_package=False)
def fingerprint(source: str, tfds_data_dir: str, pretrained: str, listing: dsl.Output[dsl.Artifact]) -> str:
    """Fingerprints the files behind a source, so that prepare's cached result is of these very files.

    It takes names, sizes and times of the files, and reads none of them. It must itself never come from a cache.

    Args:
        source: sample://NAME, tfds://NAME, or a path or gs:// URI (globs too) of .csv, .tsv or .jsonl files.
        tfds_data_dir: Folder or gs:// URI of prepared TensorFlow Datasets; empty for its default.
        pretrained: Model whose tokenizer a text source needs: folder, gs:// folder, sample://minilm or hub name.
        listing: JSON of what was seen: names, sizes and times of files, versions of packages, names.

    Returns:
        SHA-256 in hexadecimal digits.
    """
    from components import files, step
    from components.fingerprint.fingerprint import fingerprint

    with step.running("fingerprint", listing=listing.uri) as run:
        seen = fingerprint(source, tfds_data_dir=tfds_data_dir, pretrained=pretrained)
        figures = {"fingerprint": seen.digest, "source_files": len(seen.files), "source_bytes": seen.bytes}
        run.report(**figures)
        listing.metadata.update(figures)
        files.write_json(listing.uri, seen.as_json())
    return seen.digest
