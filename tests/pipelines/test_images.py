"""images.json: by digest, whole, and with the right names."""

import json

import pytest

from components.errors import ConfigError
from pipelines import images

DIGEST = f"registry.example/p/r/cpu@sha256:{'0' * 64}"
GOOD = {"cpu": DIGEST, "tpu": DIGEST.replace("cpu", "tpu"), "serving": f"registry.example/s:v1@sha256:{'f' * 64}"}


def write(tmp_path, values):
    path = tmp_path / "images.json"
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    return path


def test_digests_are_taken(tmp_path):
    assert images.load(write(tmp_path, GOOD)) == images.Images(**GOOD)


@pytest.mark.parametrize(
    "image",
    [
        "registry.example/cpu:latest",
        "registry.example/cpu",
        f"registry.example/cpu@sha256:{'0' * 63}",
        f"registry.example/cpu@sha256:{'A' * 64}",
        "registry.example/cpu@sha1:0000",
    ],
)
def test_a_mutable_image_is_refused(tmp_path, image):
    with pytest.raises(ConfigError, match=r"cpu is .* expected HOST/PATH@sha256|no digest.*--allow-tags"):
        images.load(write(tmp_path, GOOD | {"cpu": image}))


def test_tags_can_be_allowed(tmp_path):
    tagged = GOOD | {"cpu": "registry.example:5000/cpu:v1"}
    assert images.load(write(tmp_path, tagged), allow_tags=True).cpu == "registry.example:5000/cpu:v1"
    assert images.load(tmp_path / "missing.json", allow_tags=True) == images.Images()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"cpu": DIGEST, "tpu": DIGEST}, "no image 'serving'"),
        (GOOD | {"gpu": DIGEST}, "'gpu'.*Did you mean"),
        (GOOD | {"cpu": 3}, "cpu is 3"),
        (GOOD | {"cpu": "a b; rm -rf /"}, "cpu is 'a b; rm"),
        ([], "holds no images"),
        ("{", "JSON"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, values, sentence):
    with pytest.raises(ConfigError, match=sentence):
        images.load(write(tmp_path, values), allow_tags=True)


def test_a_missing_file_says_what_makes_it(tmp_path):
    with pytest.raises(ConfigError, match=r"make images writes it.*--allow-tags"):
        images.load(tmp_path / "images.json")
