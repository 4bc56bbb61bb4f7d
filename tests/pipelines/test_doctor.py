"""The doctor: this environment is well, and each known trap is told from a good set of versions."""

import pytest
from packaging.version import Version

from pipelines.doctor import COUPLED, TRAPS, expected, installed

GOOD = {
    "tensorflow": "2.19.1",
    "tf-keras": "2.19.0",
    "tensorflow-text": "2.19.0",
    "transformers": "4.53.3",
    "kfp": "2.17.3",
    "protobuf": "6.33.0",
    "numpy": "2.1.3",
}


def told(**changes):
    versions = {**GOOD, **{name.replace("_", "-"): version for name, version in changes.items()}}
    known = {name: Version(version) for name, version in versions.items() if version}
    return [trap.sentence for trap in TRAPS if trap.applies(known)]


def test_the_locked_versions_are_in_no_trap():
    assert told() == []
    assert told(tensorflow="", tensorflow_tpu="2.19.1", libtpu="0.0.10") == []


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"transformers": "4.54.0"}, "safetensors"),
        ({"transformers": "5.2.0"}, "no TensorFlow classes"),
        ({"tensorflow_tpu": "2.19.1"}, "both installed"),
        ({"tensorflow_cpu": "2.19.1"}, "undefined symbol"),
        ({"protobuf": "5.29.1"}, "protobuf 6.31"),
        ({"kfp": "2.15.2"}, "conditions"),
        ({"google_cloud_aiplatform": "2.7.0"}, "below 2"),
        ({"tensorflow": "2.20.0"}, "minor version"),
        ({"tf_keras": "2.20.1"}, "minor version"),
        ({"tensorflow": "", "tensorflow_tpu": "2.20.0", "tf_keras": "2.20.1", "tensorflow_text": "2.20.0"}, "crashes"),
    ],
)
def test_a_trap_is_told(changes, word):
    (sentence,) = told(**changes)
    assert word in sentence


def test_what_is_installed_is_what_the_lock_says():
    versions = installed()
    for name, specifier in expected(versions).items():
        assert name in COUPLED
        assert specifier == f"=={versions[name]}"
