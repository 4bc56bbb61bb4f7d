"""The container images of a compiled pipeline, by digest."""

import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path

from components.errors import ConfigError, did_you_mean
from components.images import CPU_IMAGE, SERVING_IMAGE, TPU_IMAGE

# HOST/PATH@sha256:DIGEST, as the OCI distribution specification writes it; a tag may stand before the digest.
_BY_DIGEST = re.compile(r"[a-z0-9][\w.:/-]*@sha256:[0-9a-f]{64}")
_IMAGE = re.compile(r"[a-z0-9][\w.:/-]*(@sha256:[0-9a-f]{64})?")


@dataclass(frozen=True)
class Images:
    """Images that a pipeline's steps run in.

    Attributes:
        cpu: Of every step but training.
        tpu: Of the training step, on a TPU.
        serving: That answers predictions of the registered model.
    """

    cpu: str = CPU_IMAGE
    tpu: str = TPU_IMAGE
    serving: str = SERVING_IMAGE


def load(path: Path, *, allow_tags: bool = False, required: bool = False) -> Images:
    """Reads `images.json`, which the build writes: `{"cpu": "HOST/PATH@sha256:...", "tpu": ..., "serving": ...}`.

    Args:
        path: The file.
        allow_tags: Accept an image that is named by tag. A tag can come to mean other code while Vertex AI's cache
            still takes a step's old output for it.
        required: Where tags are allowed, refuse a missing file too; else the images are those of `components.images`.

    Raises:
        ConfigError: if the file can't be read, or an image is missing, unknown or not named by digest.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if allow_tags and not required:
            return Images()
        raise ConfigError(
            f"{path} is not there: make images writes it, once make infra has made a registry. Give another by "
            "--images; or --allow-tags, for a look (with --dry-run) or images that have no digest."
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} can't be read as JSON ({error}); expected images by name.") from error
    return _checked(values, path, allow_tags=allow_tags)


def _checked(values: object, path: Path, *, allow_tags: bool) -> Images:
    names = [field.name for field in dataclasses.fields(Images)]
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds no images by name; expected {', '.join(names)}.")
    faults = [f"{path} has no image {name!r}." for name in names if name not in values]
    for name, image in values.items():
        if name not in names:
            faults.append(f"{path} has the image {name!r}, expected {', '.join(names)}.{did_you_mean(name, names)}")
        elif not isinstance(image, str) or not _IMAGE.fullmatch(image):
            faults.append(f"{path}: {name} is {image!r}, expected HOST/PATH@sha256:DIGEST.")
        elif not allow_tags and not _BY_DIGEST.fullmatch(image):
            faults.append(
                f"{path}: {name} is {image!r}, which has no digest; name it as HOST/PATH@sha256:DIGEST, or give "
                "--allow-tags."
            )
    if faults:
        raise ConfigError("\n".join(faults))
    return Images(**values)
