"""RunConfig: the four shipped configs are valid, and what is wrong is said in a sentence that names the right thing."""

from pathlib import Path

import pytest
import yaml

from components.errors import ConfigError
from pipelines.config import hidden, load, parameter_fields, parameters

ROOT = Path(__file__).parent.parent.parent
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
MNIST = ROOT / "configs" / "mnist_sample.yaml"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_shipped_config_is_valid_and_its_head_says_what_to_expect(path):
    config = load(path)
    head = "".join(line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.startswith("#"))
    assert f"configs/{path.name}" in head
    for word in ("machine:", "minutes:", "test accuracy:"):
        assert word in head
    assert path.stem == "vertex.example" or config.name == path.stem.replace("_", "-")


def test_the_tpu_guides_settings_are_the_guides():
    """https://www.tensorflow.org/guide/tpu: batch 200, 5 epochs, 50 steps per execution, Adam."""
    training = load(ROOT / "configs" / "mnist.yaml").training
    assert (training.global_batch_size, training.epochs, training.steps_per_execution) == (200, 5, 50)
    assert training.optimizer == "adam"


def test_overrides_are_read_by_the_settings_type():
    config = load(
        MNIST,
        [
            "training.epochs=3",
            "training.learning_rate=1e-5",
            "data.try_gcs=true",
            "release.model_name=123",
            "model.arguments.filters=[8, 16]",
            "training.class_weights={3: 2.0}",
            "name=other",
            "training.global_batch_size=010",
        ],
    )
    assert config.training.epochs == 3
    assert config.training.learning_rate == 1e-5
    assert config.data.try_gcs is True
    assert config.release.model_name == "123"
    assert config.model.arguments["filters"] == [8, 16]
    assert config.model.arguments["pool"] is True, "the other arguments stay"
    assert config.training.class_weights == {"3": 2.0}
    assert config.name == "other"
    assert config.training.global_batch_size == 10, "not octal, as YAML 1.1 has it"


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("training.epoch=3", "Did you mean 'epochs'?"),
        ("trainig.epochs=3", "a run has no section or setting 'trainig'. Did you mean 'training'?"),
        ("training=3", "training is a section; name one of its settings: loop, epochs"),
        ("name.x=3", "name is 'mnist-sample' there, which holds no 'x'"),
        ("training.epochs", "has no '='"),
        ("training.epochs=3.5", "training.epochs is 3.5, expected: a valid integer"),
        ("training.epochs=abc", "training.epochs is 'abc', expected: a valid integer"),
        ("training.epochs=2020-13-45", "the value is not YAML"),
        ("training.epochs=1:30", "training.epochs is '1:30', expected: a valid integer"),
        ("training.epochs=true", "training.epochs is True, expected: a valid integer"),
        ("training.epochs=0", "training.epochs is 0, expected: greater than or equal to 1"),
        ("training.learning_rate=.nan", "training.learning_rate is nan, expected: a finite number"),
        ("training.learning_rate=-1", "training.learning_rate is -1, expected: greater than 0"),
        ("data.try_gcs=yes please", "data.try_gcs is 'yes please', expected: a valid boolean"),
        ("training.loop=cutsom", "Did you mean 'custom'?"),
        ("training.decay=", "training.decay is None, expected one of constant, linear, cosine"),
        ("training.class_weights=[1, 2]", "training.class_weights is [1, 2], expected: a valid dictionary"),
        ("training.global_batch_size=[1", "the value is not YAML"),
        ("machine.name=v5e-5", "Did you mean 'v5e-8'?|Did you mean 'v5e-4'?|Did you mean 'v5e-1'?"),
        ("machine.name=v6e-4", "TensorFlow is not supported from v6e on"),
        ("machine.name=v5e-16", "its 4 hosts would each need a TensorFlow worker"),
        ("machine.accelerator_type=TPU_V3", "machine.name alone decides machine_type, accelerator_type"),
        ("machine.accelerator_count=8", "machine.name alone decides"),
        ("machine.machine_type=e2-standard-8", "machine.name alone decides"),
        ("vertex.tpu_topology=2x2", "machine.name alone decides"),
        ("vertex.region=us-east1", "Did you mean 'regions'?"),
        ("vertex.regions=[]", "vertex.regions is []"),
        ("vertex.service_account=someone@example.com", "vertex.service_account is"),
        ("vertex.network=default", "vertex.network is 'default'"),
        ("vertex.experiment=My Experiment", "vertex.experiment is 'My Experiment'"),
        ("vertex.tensorboard=projects/p/locations/us-central1/tensorboards/1", "needs vertex.service_account"),
        ("vertex.deploy=true", None),
        ("vertex.endpoint=projects/p/locations/us-central1/endpoints/1", "but vertex.deploy is false"),
        ("vertex.model_aliases=[1st]", "vertex.model_aliases.0 is '1st'"),
        ("vertex.notify_webhook=http://example.com/x", "vertex.notify_webhook is"),
        ("vertex.notify_emails=[a@b]", "vertex.notify_emails.0 is 'a@b'"),
        ("vertex.notify_emails=[a@b.c, a@b.c, a@b.c, a@b.c]", "at most 3 items"),
        ("vertex.labels={Team: ml}", "the key 'Team', expected at most 63 lower-case letters"),
        ("vertex.labels={team: ML Ops}", "such as 'ml-ops'"),
        ("vertex.labels={version: '1.0'}", "such as '1-0'"),
        ("vertex.labels={user: ann@example.com}", "such as 'ann-example-com'"),
        ("vertex.labels={long: " + "x" * 70 + "}", "expected at most 63"),
        ("vertex.labels={1st: a}", "a letter first"),
        ("vertex.labels={empty: '', n: 1}", None),
        ("vertex.labels={a: true}", "vertex.labels.a is True"),
        ('release.model_name=a "quoted" name', "release.model_name is"),
        ("release.model_name=   ", "release.model_name is"),
        ("training.epochs=9007199254740993", "expected: less than or equal to 2147483647"),
        ("training.epochs=!!bool x", "the value is not YAML"),
        ("model.arguments={a: .nan}", "model.arguments.a is a float, expected texts, finite numbers"),
        ("model.arguments={a: [2024-01-01]}", "model.arguments.a.0 is a date"),
        ("model.arguments={a: {1: 2}}", "model.arguments.a is a dict"),
        ("model.arguments=&a {x: *a}", "model.arguments holds itself"),
        ("vertex.train_timeout_hours=0.0001", "greater than or equal to 0.1"),
        ("vertex.regions=[us-east1, us-east1]", "vertex.regions has a region twice"),
        ('vertex.pipeline_root=gs://bucket/a"b', "vertex.pipeline_root is"),
        ("vertex.pipeline_root=gs://bucket/a[1]", "vertex.pipeline_root is"),
        ('vertex.service_account=a"b@x.gserviceaccount.com', "vertex.service_account is"),
        ("machine.name=cpu-4", None),
        ("machine.tpu=grpc://10.0.0.2:8470", "machine.name cpu-1 has no TPU"),
        ("training.optimizer=adam", "adam has none; use adamw"),
        ("training.checkpoint_every_steps=7", "expected a multiple of training.steps_per_execution (10)"),
        ("model.pretrained=sample://minilm", "image_classifier starts from scratch"),
        ("model.builder=text_classifier", "model.pretrained is empty"),
        ("data.source=gs://b/reviews/*.csv", "a file of texts, but model.builder is image_classifier"),
        ("name=サンプル", "name is 'サンプル', expected 1 to 63 lower-case letters, digits and dashes"),
        ("name=" + "a" * 200, "expected 1 to 63"),
        ("vertex.pipeline_root=/home/me", "vertex.pipeline_root is '/home/me'"),
    ],
)  # fmt: skip
def test_a_wrong_override_is_one_clear_sentence(override, sentence):
    if sentence is None:
        load(MNIST, [override])
        return
    with pytest.raises(ConfigError) as raised:
        load(MNIST, [override])
    text = str(raised.value)
    assert any(part in text for part in sentence.split("|")), text
    assert "\n" not in text


def test_a_batch_that_replicas_can_not_share_names_one_that_they_can():
    with pytest.raises(ConfigError, match=r"use a multiple of 8, such as 64\."):
        load(MNIST, ["machine.name=cpu-8", "training.global_batch_size=65"])


def test_everything_that_is_wrong_is_listed_at_once(tmp_path):
    values = yaml.safe_load(MNIST.read_text(encoding="utf-8"))
    values["training"]["epoch"] = values["training"].pop("epochs")
    values["training"]["decay"] = "cosin"
    values["machine"]["name"] = "v4-8"
    del values["data"]["source"]
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")

    with pytest.raises(ConfigError) as raised:
        load(path)

    lines = str(raised.value).splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines)
    for part in (
        "training.epochs is missing",
        "training.epoch is not a setting. Did you mean 'epochs'?",
        "training.decay is 'cosin', expected one of",
        "machine.name is 'v4-8'",
        "data.source is missing",
    ):
        assert sum(part in line for line in lines) == 1, part


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "holds no sections"),
        ("- a\n- b\n", "holds no sections"),
        ("name: [", "is not YAML"),
        ("name: a\nname: b\n", "the key 'name' stands twice"),
        ("name: caf\xe9", "is not YAML"),
        ("name: x\ndata: 3\n", "data is 3"),
        ("name: x\ntrainig: {}\n", "trainig is not a setting. Did you mean 'training'?"),
    ],
)
def test_a_broken_file_is_one_clear_sentence(content, sentence, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError) as raised:
        load(path)
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("name", "slug"), [("MNIST TPU!", "mnist-tpu"), ("my_pipeline", "my-pipeline"), ("My Run", "my-run"), ("x", "x")]
)
def test_a_name_is_made_to_fit_a_pipeline(name, slug):
    assert load(MNIST, [f"name={name}"]).name == slug


def test_wrong_overrides_are_listed_with_what_else_is_wrong():
    with pytest.raises(ConfigError) as raised:
        load(MNIST, ["training.epoch=3", "data.source:gs://x", "vertex.labels={A: 1}", "training.decay=cosin"])
    assert len(str(raised.value).splitlines()) == 4


def test_a_run_on_vertex_ai_is_rehearsed_here_with_all_its_settings():
    """Promise 1: what is wished for the TPU must not stop the run on a CPU."""
    config = load(ROOT / "configs" / "vertex.example.yaml", ["machine.name=cpu-4", "vertex.capacity=spot"])
    assert config.machine.row.replicas == 4


def test_a_secret_is_not_shown():
    with pytest.raises(ConfigError) as raised:
        load(MNIST, ["vertex.notify_webhook=https://hooks.example.com/a secret"])
    assert "https://hooks.example.com/..." in str(raised.value)
    assert "secret" not in str(raised.value)
    for override in (
        *("vertex.notify_webhook=hooks.example.com/secret", "vertex.notify_webhook= https://h/secret"),
        *("vertex.notify_webhok=https://h/secret", "vertex.notify_webhook:https://h/secret"),
        *("vertex.notify_webhook=https://user:secret@h/x", "vertex.notify_webhook=https://h?secret"),
    ):
        with pytest.raises(ConfigError) as raised:
            load(MNIST, [override])
        assert "secret" not in str(raised.value), override
    assert hidden("https://hooks.example.com/T0/secret") == "https://hooks.example.com/..."


def test_labels_are_counted():
    labels = ", ".join(f"l{index}: a" for index in range(64))
    with pytest.raises(ConfigError, match=r"has 64 labels, expected at most 63"):
        load(MNIST, [f"vertex.labels={{{labels}}}"])


def test_a_missing_file_is_one_clear_sentence(tmp_path):
    with pytest.raises(ConfigError, match=r"can't be read \(No such file or directory\)"):
        load(tmp_path / "none.yaml")


def test_an_override_needs_a_section_that_is_one(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("training: 3\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="training"):
        load(path, ["training.epochs=3"])


def test_parameters_are_all_settings_but_those_of_the_place():
    values = parameters(load(MNIST))
    assert set(values) == set(parameter_fields())
    assert values["model_name"] == "mnist-sample"
    assert values["epochs"] == 15
    assert "project" not in values
