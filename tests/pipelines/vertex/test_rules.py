"""What Vertex AI would refuse is refused here, with the setting's name and what to write."""

import re
from pathlib import Path

import pytest
import yaml

from components.errors import ConfigError
from pipelines.config import load, parameters
from pipelines.images import Images
from pipelines.vertex import rules, submission
from pipelines.vertex.compile import compile_pipeline

CONFIG = Path("configs/mnist.yaml")
VERTEX = ("vertex.project=my-project", "vertex.pipeline_root=gs://my-bucket/runs")


def config(*overrides):
    return load(CONFIG, [*VERTEX, *overrides])


def test_a_good_run_passes():
    rules.check(config())


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["vertex.project="], "vertex.project is empty"),
        (["vertex.pipeline_root="], "vertex.pipeline_root is empty; set it to a gs:// folder"),
        (
            ["data.source=/data/reviews/*.csv", "model.builder=mine:build"],
            "data.source is '/data/reviews/\\*.csv', which a worker",
        ),
        (["data.source=reviews.csv", "model.builder=mine:build"], "data.source is 'reviews.csv'"),
        (["data.tfds_data_dir=~/tfds"], "data.tfds_data_dir is '~/tfds'"),
        (["training.checkpoint_dir=runs/x"], "training.checkpoint_dir is 'runs/x'"),
        (["model.builder=image_clasifier"], "Did you mean 'image_classifier'"),
        (["data.source=sample://nope"], "data.source is 'sample://nope', expected a name after it"),
        (["data.source=gs://"], "data.source is 'gs://'"),
        (["vertex.experiment=mnist"], "vertex.experiment is 'mnist', the pipeline's own name"),
        (["machine.name=gpu-4"], "machine.name is 'gpu-4'; on Vertex AI"),
        (["machine.tpu=my-tpu"], "machine.tpu is 'my-tpu'"),
        (["machine.name=cpu-4", "vertex.regions=[us-centrl1]"], "expected one of .* Did you mean 'us-central1'"),
        (["machine.name=cpu-4", "vertex.regions=[eu]"], "'eu', expected one of africa-south1"),
        (["machine.name=cpu-4", "vertex.regions=[global]"], "'global', expected one of"),
    ],
)
def test_what_it_could_not_run_is_refused(overrides, sentence):
    with pytest.raises(ConfigError, match=sentence):
        rules.check(config(*overrides))


def test_all_faults_are_listed_at_once():
    with pytest.raises(ConfigError) as caught:
        rules.check(config("vertex.project=", "data.source=x", "training.checkpoint_dir=y", "machine.name=gpu-4"))
    assert len(str(caught.value).splitlines()) == 4


@pytest.mark.parametrize("name", ["bert-large-cased", "org/model", "gs://bucket/model", "sample://minilm"])
def test_an_encoder_that_a_worker_can_reach(name):
    rules.check(load(Path("configs/bert_large.yaml"), [*VERTEX, f"model.pretrained={name}"]))


@pytest.mark.parametrize("name", ["./model", "/models/bert", "~/bert", "tests"])
def test_an_encoder_of_this_machine_is_refused(name):
    with pytest.raises(ConfigError, match=r"model\.pretrained is"):
        rules.check(load(Path("configs/bert_large.yaml"), [*VERTEX, f"model.pretrained={name}"]))


def test_regions_are_those_of_the_sdk():
    from google.cloud.aiplatform.constants import base

    assert set(rules.REGIONS) == set(base.SUPPORTED_REGIONS) - {"global"}


def test_settings_that_no_command_can_carry_are_refused():
    weights = "{" + ", ".join(f"class-{index:04d}-{'x' * 12}: 1.5" for index in range(5000)) + "}"
    with pytest.raises(
        ConfigError, match=r"settings are .* bytes as JSON, most of them in class_weights; .* at most 114,687"
    ):
        rules.check(config(f"training.class_weights={weights}"))


@pytest.mark.parametrize(
    ("wish", "slug"),
    [
        ("My_Run 1", "my-run-1"),
        ("run-v1.0", "run-v1-0"),
        ("1st try", "x-1st-try"),
        ("a" * 122, "a" * 122),
        ("x", "x"),
    ],
)
def test_a_wished_id_is_made_to_fit(wish, slug):
    assert rules.job_id(wish) == slug
    assert re.fullmatch("[a-z][-a-z0-9]{0,127}", slug)


@pytest.mark.parametrize("wish", ["サンプル", "___", "a" * 123, "1" * 122])
def test_an_id_that_can_not_be_made_to_fit_is_refused(wish):
    with pytest.raises(ConfigError, match=r"--job-id is .*expected 1 to 122"):
        rules.job_id(wish)


def test_ids_of_the_same_second_differ_and_fit():
    ids = {rules.new_job_id("a" * 63) for _ in range(50)}
    assert len(ids) > 45
    assert all(re.fullmatch("[a-z][-a-z0-9]{0,127}", job) for job in ids)


def test_a_display_name_stays_as_it_is():
    assert rules.display_name("My Run Ünïcode ") == "My Run Ünïcode "


@pytest.mark.parametrize("name", [" ", "x" * 129])
def test_a_display_name_that_is_blank_or_too_long_is_refused(name):
    with pytest.raises(ConfigError, match=r"display name has .* expected 1 to 128"):
        rules.display_name(name)


@pytest.mark.parametrize(
    "cron", ["0 3 * * 1", "*/15 * * * *", "TZ=Europe/Berlin 0 3 * * MON-FRI", "CRON_TZ=UTC 1 * * * *"]
)
def test_cron_expressions(cron):
    rules.check_cron(cron)


def test_builders_and_samples_are_those_of_the_steps():
    from components.models import registry
    from components.prepare import samples

    assert set(rules.BUILDERS) == set(registry.BUILDERS)
    assert set(rules.SAMPLES) == set(samples.SAMPLES)


@pytest.mark.parametrize("cron", ["99 3 * * *", "0 24 * * *", "0 3 0 * *", "0 3 * 13 *", "0 3 * * 8", "*/0 * * * *"])
def test_a_field_of_a_cron_expression_has_bounds(cron):
    with pytest.raises(ConfigError, match=r"--cron has .* expected"):
        rules.check_cron(cron)


@pytest.mark.parametrize(
    "cron",
    ["", "daily", "a b c d e", "? ? ? ? ?", "0 3 * * FUNDAY", "0 3 * *", "0 3 * * 1; rm", "@daily"],
)
def test_what_is_no_cron_expression(cron):
    with pytest.raises(ConfigError, match="expected minute, hour"):
        rules.check_cron(cron)


def test_a_time_zone_that_there_is_not():
    with pytest.raises(ConfigError, match=r"'Europe/Berln', which there isn't. Did you mean 'Europe/Berlin'"):
        rules.check_cron("TZ=Europe/Berln 0 3 * * 1")


SPEC = {
    "root": {
        "inputDefinitions": {
            "parameters": {
                "epochs": {"parameterType": "NUMBER_INTEGER", "defaultValue": 3, "isOptional": True},
                "shuffle": {"parameterType": "BOOLEAN"},
                "layers": {"parameterType": "LIST", "isOptional": True},
                "learning_rate": {"parameterType": "NUMBER_DOUBLE", "isOptional": True},
                "source": {"parameterType": "STRING"},
                "arguments": {"parameterType": "STRUCT", "isOptional": True},
            }
        }
    }
}
GOOD = {"shuffle": False, "source": "gs://b/x"}


@pytest.mark.parametrize(
    "values",
    [{}, {"epochs": 5}, {"epochs": 5.0}, {"layers": [64, 32]}, {"learning_rate": 1}, {"arguments": {"a": 1}}],
)
def test_parameters_of_the_right_types(values):
    rules.check_parameters(SPEC, GOOD | values)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"epochs": 3.5}, "'epochs' is 3.5, expected a whole number"),
        ({"epochs": "3"}, "'epochs' is '3', expected a whole number"),
        ({"epochs": True}, "'epochs' is True, expected a whole number"),
        ({"shuffle": "false"}, "'shuffle' is 'false', expected true or false"),
        ({"shuffle": 0}, "'shuffle' is 0, expected true or false"),
        ({"layers": "[64]"}, "'layers' is .*expected a list"),
        ({"learning_rate": float("nan")}, "expected a number"),
        ({"learning_rate": float("inf")}, "expected a number"),
        ({"source": 7}, "'source' is 7, expected a text"),
        ({"source": None}, "'source' has no value, expected a text"),
        ({"epochs": None}, "'epochs' has no value"),
        ({"arguments": [1]}, "expected values by name"),
        ({"epoch": 3}, "no parameter 'epoch'. Did you mean 'epochs'"),
    ],
)
def test_parameters_of_the_wrong_types_or_names(values, sentence):
    with pytest.raises(ConfigError, match=sentence):
        rules.check_parameters(SPEC, GOOD | values)


def test_missing_and_unknown_parameters_are_listed_together():
    with pytest.raises(ConfigError) as caught:
        rules.check_parameters(SPEC, {"epoch": 3, "surce": "x"})
    assert str(caught.value).splitlines() == [
        "The pipeline has no parameter 'epoch'. Did you mean 'epochs'?",
        "The pipeline has no parameter 'surce'. Did you mean 'source'?",
        "The pipeline's parameter 'shuffle' has no value, expected true or false.",
        "The pipeline's parameter 'source' has no value, expected a text.",
    ]


def test_a_submission_is_checked_whole():
    run = submission.make(config(), Images(), display_name="My Run Ü", job_id="My_Run 1")
    assert (run.display_name, run.job_id) == ("My Run Ü", "my-run-1")
    assert run.parameters == parameters(config())
    assert yaml.safe_load(run.pipeline)["pipelineInfo"]["name"] == "mnist"


def test_a_pipeline_compiled_before_must_take_the_run_s_parameters(tmp_path):
    text = compile_pipeline(config(), Images())
    good, other, broken = tmp_path / "good.yaml", tmp_path / "other.yaml", tmp_path / "broken.yaml"
    good.write_text(text)
    assert submission.make(config(), Images(), pipeline=good).pipeline == text
    other.write_text(
        text.replace("      global_batch_size:\n        defaultValue", "      batch_size:\n        defaultValue")
    )
    with pytest.raises(ConfigError, match="no parameter 'global_batch_size'"):
        submission.make(config(), Images(), pipeline=other)
    for setting in ("machine.name=v5e-1", "vertex.labels={team: ml}", "vertex.capacity=spot"):
        with pytest.raises(ConfigError, match="compiled with other settings"):
            submission.make(config(setting), Images(), pipeline=good)
    broken.write_text("a: b")
    with pytest.raises(ConfigError, match="no compiled pipeline"):
        submission.make(config(), Images(), pipeline=broken)
    with pytest.raises(ConfigError, match="can't be read"):
        submission.make(config(), Images(), pipeline=tmp_path / "missing.yaml")
