"""Opens a source by its URI."""

from components import files
from components.errors import ConfigError, DataError, did_you_mean
from components.prepare import samples, text_files, tfds_source
from components.prepare.settings import PrepareSettings
from components.prepare.source import Source

SCHEMES = ("sample://", tfds_source.PREFIX, "gs://")


def open_source(settings: PrepareSettings, *, download: bool = True) -> Source:
    """Returns the source that `settings.source` names, checked as far as that needs no reading of its examples.

    Args:
        settings: The source's name, and what goes with it.
        download: Download a tfds data set that is not there; else its examples can't be read.

    Raises:
        ConfigError: if the name, or a setting that goes with it, is unknown.
        DataError: if files are missing, empty or can't be downloaded.
    """
    uri = settings.source
    if uri.startswith("sample://"):
        return samples.open_sample(uri)
    if uri.startswith(tfds_source.PREFIX):
        return tfds_source.TfdsSource(settings, download=download)
    scheme = uri.partition("://")[0] + "://"
    if files.is_remote(uri) and scheme not in SCHEMES:
        raise ConfigError(
            f"data.source is {uri!r}, expected a local path or a URI that starts with {', '.join(SCHEMES)}."
            f"{did_you_mean(uri, samples.SAMPLES) or did_you_mean(scheme, SCHEMES)}"
        )
    return text_files.TextFiles(settings)


def unreadable(settings: PrepareSettings, error: OSError) -> DataError:
    """Returns what to tell the user when the system fails in the midst of reading a source."""
    return DataError(f"{settings.source} can't be prepared: {error}; check that it can be read, and the disk.")
