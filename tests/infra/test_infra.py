"""The Terraform of infra/: what can be said of it without Google Cloud and without its providers."""

import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import hcl2
import pytest
import yaml

from components.errors import ConfigError
from infra import from_config
from pipelines.config import Vertex, load
from pipelines.machines import GENERATIONS

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"
FILES = sorted(INFRA.glob("*.tf"))
TERRAFORM = shutil.which("terraform")
needs_terraform = pytest.mark.skipif(TERRAFORM is None, reason="NOT RUN: there is no terraform on the PATH")
EXAMPLE = ROOT / "configs" / "vertex.example.yaml"
# Of a Google Cloud project, what variables alone don't know.
MADE = {
    'google_service_account.this["pipeline"].email': "pipeline@my-project.iam.gserviceaccount.com",
    'google_service_account.this["trainer"].email': "trainer@my-project.iam.gserviceaccount.com",
    "google_artifact_registry_repository.images.repository_id": "images",
    "google_artifact_registry_repository.pipelines.repository_id": "pipelines",
    "google_vertex_ai_tensorboard.this[0].name": "projects/123456789012/locations/us-central1/tensorboards/7",
    "google_compute_network.this[0].name": "main",
    "data.google_project.this.number": "123456789012",
}


@cache
def parsed(path):
    options = hcl2.SerializationOptions(strip_string_quotes=True, with_comments=False, explicit_blocks=False)
    return hcl2.loads(path.read_text(encoding="utf-8"), serialization_options=options)


def blocks(kind):
    """Returns the bodies of all blocks of a kind, by their labels."""
    found = {}
    for path in FILES:
        for block in parsed(path).get(kind, []):
            names = []
            while len(block) == 1 and isinstance(next(iter(block.values())), dict) and len(names) < LABELS[kind]:
                ((name, block),) = block.items()
                names.append(name)
            assert tuple(names) not in found, names
            found[tuple(names)] = block
    return found


LABELS = {"resource": 2, "data": 2, "variable": 1, "output": 1}


def local_values():
    return {name: value for path in FILES for block in parsed(path).get("locals", []) for name, value in block.items()}


def code():
    """Returns all the Terraform without comments."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in FILES)
    return re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_terraform(path):
    assert parsed(path)


@needs_terraform
def test_the_files_are_formatted():
    result = subprocess.run([TERRAFORM, "fmt", "-check", "-recursive", INFRA], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_versions_are_pinned():
    text = (INFRA / "versions.tf").read_text(encoding="utf-8")
    assert 'required_version = ">= 1.5"' in text
    assert re.search(r'source\s+= "hashicorp/google"\s+version = "~> 6\.\d+"', text)


# What may be any text or number has a validation; true and false need none.
@pytest.mark.parametrize(("name", "body"), [(key[0], body) for key, body in blocks("variable").items()])
def test_a_variable_says_what_it_is(name, body):
    assert body["type"]
    assert body["description"].endswith(".")
    assert ("validation" in body) == (body["type"] != "bool")
    for validation in body.get("validation", []):
        assert validation["error_message"].startswith(f"{name} must")


def test_variables_and_locals_are_declared_and_used():
    used = set(re.findall(r"\bvar\.(\w+)", code()))
    # A variable's own validation is no use of it.
    body = "\n".join(path.read_text(encoding="utf-8") for path in FILES if path.name != "variables.tf")
    assert set(re.findall(r"\bvar\.(\w+)", body)) == used == {name for (name,) in blocks("variable")}
    assert set(re.findall(r"\blocal\.(\w+)", code())) == set(local_values())


def test_the_regions_are_those_of_the_machines():
    condition = str(blocks("variable")["regions",]["validation"][0]["condition"])
    listed = re.findall(r"[a-z]+-[a-z]+\d", condition)
    trained_in = {region for row in GENERATIONS.values() if not row.refusal for region in row.regions}
    assert listed == sorted(trained_in)


def roles_in_code():
    """Returns (account, role, what it is on), as the Terraform gives them."""
    places = {
        "project_roles": "project",
        "bucket_roles": "buckets",
        "image_roles": "image repository",
        "pipeline_roles": "pipeline repository",
    }
    values = local_values()
    grants = {
        (account, role, place)
        for name, place in places.items()
        for account, roles in values[name].items()
        for role in re.findall(r"roles/[\w.]+", str(roles))
    }
    grants |= {
        (account, "roles/iam.serviceAccountUser", f"account {other}")
        for account, others in values["acts_as"].items()
        for other in others
    }
    return grants | {(agent, "roles/artifactregistry.reader", "image repository") for agent in values["service_agents"]}


def test_the_roles_are_those_of_the_documentation():
    text = (ROOT / "docs" / "infra.md").read_text(encoding="utf-8")
    section = text.partition("## Who may do what")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| `")
    ]
    documented = [(row[0].strip("`"), row[1].strip("`"), row[2]) for row in rows]
    assert len(documented) == len(set(documented))
    assert set(documented) == roles_in_code()
    assert all(len(row) == 4 and row[3] for row in rows), "each says why"


def test_roles_are_given_in_no_other_way():
    given = {key for key in blocks("resource") if "_iam_" in key[0]}
    assert given == {
        ("google_project_iam_member", "this"),
        ("google_storage_bucket_iam_member", "this"),
        ("google_artifact_registry_repository_iam_member", "images"),
        ("google_artifact_registry_repository_iam_member", "pipelines"),
        ("google_artifact_registry_repository_iam_member", "service_agents"),
        ("google_service_account_iam_member", "acts_as"),
    }
    assert set(re.findall(r"roles/[\w.]+", code())) == {role for _, role, _ in roles_in_code()}
    assert "google_service_account_key" not in code()


def test_nobody_may_do_more_than_the_work_needs():
    grants = roles_in_code()
    on_project = {(account, role) for account, role, place in grants if place == "project"}
    assert {role for _, role in on_project} == {"roles/aiplatform.user", "roles/logging.logWriter"}
    roles = {role for _, role, _ in grants}
    assert not roles & {"roles/owner", "roles/editor", "roles/viewer"}
    assert not [role for role in roles if re.search(r"[Aa]dmin$|[Oo]wner$|[Ee]ditor$", role)]
    # A pull request's code runs as this account, before anybody has read it.
    assert {(role, place) for account, role, place in grants if account == "checker"} == {
        ("roles/logging.logWriter", "project")
    }
    assert {place for account, role, place in grants if account == "builder" and "serviceAccount" in role} == {
        "account pipeline"
    }


def test_buckets_are_of_one_region_and_closed():
    bucket = blocks("resource")["google_storage_bucket", "runs"]
    assert bucket["for_each"] == "${toset(var.regions)}"
    assert bucket["name"] == "${local.bucket_prefix}-${each.value}"
    assert bucket["location"] == "${upper(each.value)}"
    assert bucket["uniform_bucket_level_access"] in (True, "true")
    assert bucket["public_access_prevention"] == "enforced"
    assert bucket["force_destroy"] == "${var.force_destroy}"


def test_triggers_run_the_builds_that_are_there_with_what_they_declare():
    resources = blocks("resource")
    triggers = {name: body for (kind, name), body in resources.items() if kind == "google_cloudbuild_trigger"}
    assert {name: body["filename"] for name, body in triggers.items()} == {
        "merge": "cloudbuild.yaml",
        "pull_request": "cloudbuild.pr.yaml",
    }
    assert 'this["builder"]' in triggers["merge"]["service_account"]
    assert 'this["checker"]' in triggers["pull_request"]["service_account"]
    for name, body in triggers.items():
        build = yaml.safe_load((ROOT / body["filename"]).read_text(encoding="utf-8"))
        assert set(body.get("substitutions", {})) == set(build.get("substitutions", {})), name


def test_no_project_and_no_secret_is_written_here():
    assert not re.search(r"gserviceaccount\.com|\b\d{9,}\b", code().replace(".iam.gserviceaccount.com", ""))
    assert not re.search(r"(?i)password|private_key|secret_data|\btoken\s*=", code())


@pytest.fixture(scope="module")
def terraform(tmp_path_factory):
    """Gives a function that runs Terraform on the variables and outputs, which need no provider.

    It returns the outputs for some variables, or what Terraform says of them.
    """
    folder = tmp_path_factory.mktemp("terraform")
    environment = os.environ | {"TF_CLI_CONFIG_FILE": os.devnull, "CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1"}
    outputs = (INFRA / "outputs.tf").read_text(encoding="utf-8")
    for reference, value in MADE.items():
        outputs = outputs.replace(f"${{{reference}}}", value).replace(reference, json.dumps(value))
    assert "google_" not in outputs, "what else is made must stand in MADE"
    (folder / "outputs.tf").write_text(outputs)
    (folder / "main.tf").write_text((INFRA / "main.tf").read_text(encoding="utf-8").partition("\nresource ")[0])
    shutil.copy(INFRA / "variables.tf", folder)

    def run(*words):
        return subprocess.run([TERRAFORM, *words], cwd=folder, env=environment, capture_output=True, text=True)

    initialized = run("init", "-input=false", "-no-color")
    assert initialized.returncode == 0, initialized.stderr

    def outputs_for(**variables):
        (folder / "terraform.tfvars.json").write_text(json.dumps({"project": "my-project"} | variables))
        result = run("apply", "-input=false", "-auto-approve", "-no-color")
        if result.returncode:
            return re.sub(r"[\s│]+", " ", result.stderr)  # it breaks its messages into lines with a bar in front
        return {name: output["value"] for name, output in json.loads(run("output", "-json").stdout).items()}

    return outputs_for


@needs_terraform
def test_the_output_is_a_section_that_the_config_takes(terraform):
    values = terraform(regions=["us-central1", "us-east1"])
    section = yaml.safe_load(values["vertex"])
    assert section == {
        "vertex": {
            "project": "my-project",
            "regions": ["us-central1", "us-east1"],
            "pipeline_root": "gs://my-project-{region}/runs",
            "service_account": "pipeline@my-project.iam.gserviceaccount.com",
            "trainer_service_account": "trainer@my-project.iam.gserviceaccount.com",
        }
    }
    assert Vertex(**section["vertex"]).root_in("us-east1") == "gs://my-project-us-east1/runs"
    assert values["registry"] == "us-central1-docker.pkg.dev/my-project/images"
    assert values["kfp_repository"] == "https://us-central1-kfp.pkg.dev/my-project/pipelines"


@needs_terraform
def test_the_output_has_what_was_asked_for(terraform):
    values = terraform(bucket_prefix="my-runs", tensorboard=True, private_network=True)
    vertex = Vertex(**yaml.safe_load(values["vertex"])["vertex"])
    assert vertex.tensorboard == "projects/123456789012/locations/us-central1/tensorboards/7"
    assert vertex.network == "projects/123456789012/global/networks/main"
    assert vertex.root_in("us-central1") == "gs://my-runs-us-central1/runs"


@needs_terraform
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("project", "My Project"),
        ("name", "a-name-that-is-too-long-for-an-account"),
        ("regions", []),
        ("regions", ["us-central1", "us-central1"]),
        ("regions", ["europe-west1"]),
        ("bucket_prefix", "Runs"),
        ("keep_days", -1),
        ("keep_days", 1.5),
        ("soft_delete_days", 3),
        ("keep_images_days", 0),
        ("connection", "github"),
        ("repository", "git@github.com:owner/name"),
        ("branch", "("),
        ("config", "../secrets.yaml"),
        ("config", "--help"),
        ("peering_prefix_length", 24),
        ("billing_account", "123"),
        ("budget_amount", 0),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_a_sentence(terraform, name, value):
    said = terraform(**{name: value})
    assert isinstance(said, str), "it was taken"
    assert f"{name} must" in said


@pytest.mark.slow
def test_checkov_finds_nothing():
    """In an environment of its own, from the lock: checkov pins what the rest of the project can't have."""
    environment = os.environ | {"UV_PROJECT_ENVIRONMENT": str(ROOT / ".venv" / "checkov")}
    environment.pop("VIRTUAL_ENV", None)
    uv = shutil.which("uv", path=f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}")
    assert uv, "no uv in .venv/bin or on the PATH: it installs checkov from the lock"
    installed = subprocess.run(
        [uv, "sync", "--locked", "--only-group", "infra"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert installed.returncode == 0, installed.stderr
    checkov = ROOT / ".venv" / "checkov" / "bin" / "checkov"
    result = subprocess.run(
        [checkov, "-d", INFRA, "--config-file", INFRA / ".checkov.yaml", "-o", "json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    report = json.loads(result.stdout)
    assert result.returncode == 0, json.dumps(report["results"]["failed_checks"], indent=1)
    assert report["summary"]["failed"] == 0
    assert report["summary"]["parsing_errors"] == 0
    assert report["summary"]["passed"] >= 10, "it has looked"


def test_a_runs_settings_decide_what_terraform_makes():
    settings = load(EXAMPLE, ["vertex.regions=[us-central1, us-east1]"])
    found = from_config.variables(settings.vertex)
    assert found == {
        "project": "my-project",
        "regions": ["us-central1", "us-east1"],
        "bucket_prefix": "my-runs",
        "name": "tpu-pipelines",
    }
    assert found.keys() <= {name for (name,) in blocks("variable")}
    # Vertex AI's own accounts: Terraform's name is then nobody's business.
    without = load(EXAMPLE, ["vertex.service_account=", "vertex.trainer_service_account="])
    assert "name" not in from_config.variables(without.vertex)


def test_the_accounts_of_the_example_are_those_that_terraform_makes():
    vertex = load(EXAMPLE).vertex
    ids = {role: f"{blocks('variable')['name',]['default']}-{role}" for role in local_values()["accounts"]}
    assert blocks("resource")["google_service_account", "this"]["account_id"] == "${var.name}-${each.key}"
    assert vertex.service_account == f"{ids['pipeline']}@{vertex.project}.iam.gserviceaccount.com"
    assert vertex.trainer_service_account == f"{ids['trainer']}@{vertex.project}.iam.gserviceaccount.com"


@needs_terraform
def test_the_buckets_that_terraform_makes_are_the_runs(terraform):
    vertex = load(EXAMPLE).vertex
    made = Vertex(**yaml.safe_load(terraform(**from_config.variables(vertex))["vertex"])["vertex"])
    assert made.pipeline_root == vertex.pipeline_root


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["vertex.project="], "vertex.project is empty"),
        (["vertex.pipeline_root=gs://my-runs/runs"], "expected gs://NAME-{region}/runs"),
        (["vertex.pipeline_root=gs://my-{region}-runs/runs"], "expected gs://NAME-{region}/runs"),
        (
            ["vertex.project=my-own"],
            "vertex.service_account is 'tpu-pipelines-pipeline@my-project.iam.gserviceaccount.com' and "
            "vertex.trainer_service_account 'tpu-pipelines-trainer@my-project.iam.gserviceaccount.com', expected "
            "NAME-pipeline@my-own.iam.gserviceaccount.com and NAME-trainer@my-own.iam.gserviceaccount.com",
        ),
        (["vertex.service_account=me@my-project.iam.gserviceaccount.com"], "expected NAME-pipeline@my-project"),
        (["vertex.trainer_service_account=tpu-pipelines-trainer@other.iam.gserviceaccount.com"], "expected NAME-"),
        (["vertex.service_account=tpu-pipelines-trainer@my-project.iam.gserviceaccount.com"], "expected NAME-pipeline"),
        (["vertex.trainer_service_account=b-trainer@my-project.iam.gserviceaccount.com"], "expected NAME-pipeline"),
    ],
)
def test_settings_for_which_terraform_makes_nothing_are_refused(overrides, sentence):
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        from_config.variables(load(EXAMPLE, overrides).vertex)


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Where the file of variables goes, of which there is none yet."""
    monkeypatch.setattr(from_config, "VARIABLES", tmp_path / "config.auto.tfvars.json")
    return from_config.VARIABLES


def test_one_runs_infrastructure_is_not_taken_for_anothers(written, tmp_path, capsys):
    other = tmp_path / "other.yaml"
    other.write_text(EXAMPLE.read_text(encoding="utf-8").replace("my-runs", "others-runs"), encoding="utf-8")
    from_config.main([str(EXAMPLE), "--check"])  # a fresh clone: it is written
    assert json.loads(written.read_text())["bucket_prefix"] == "my-runs"
    from_config.main([str(EXAMPLE), "--check"])
    before = written.read_bytes()
    with pytest.raises(SystemExit) as ended:
        from_config.main([str(other), "--check"])
    assert ended.value.code == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith(f"{written} is not what {other} gives")
    assert '"bucket_prefix": "my-runs"' in sentence
    assert '"bucket_prefix": "others-runs"' in sentence
    assert written.read_bytes() == before
    from_config.main([str(other)])  # as `make infra` does
    from_config.main([str(other), "--check"])
    assert json.loads(written.read_text())["bucket_prefix"] == "others-runs"


def test_settings_that_are_refused_write_nothing(written, tmp_path, capsys):
    mine = tmp_path / "mine.yaml"
    mine.write_text(EXAMPLE.read_text(encoding="utf-8").replace("project: my-project", "project: my-own"))
    for words in ([str(mine)], [str(mine), "--check"]):
        with pytest.raises(SystemExit) as ended:
            from_config.main(words)
        assert ended.value.code == 2
        assert "expected NAME-pipeline@my-own.iam" in capsys.readouterr().err
    assert not written.exists()
