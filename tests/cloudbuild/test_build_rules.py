"""cloudbuild.yaml and cloudbuild.pr.yaml: what Cloud Build accepts, in an order in which nothing goes out untested."""

import copy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from google.cloud.devtools import cloudbuild_v1
from google.protobuf import json_format

from tests.cloudbuild import rules

ROOT = Path(__file__).parents[2]
FILES = ("cloudbuild.yaml", "cloudbuild.pr.yaml")
MERGE, PULL_REQUEST = (yaml.safe_load((ROOT / name).read_text(encoding="utf-8")) for name in FILES)
BUILDS = {"merge": MERGE, "pull request": PULL_REQUEST}
EVERY_BUILD = pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
STEPS = [pytest.param(step, id=f"{name}: {step['id']}") for name, build in BUILDS.items() for step in build["steps"]]


@EVERY_BUILD
def test_a_build_is_one_to_googles_own_types(build):
    json_format.ParseDict(build, cloudbuild_v1.Build()._pb)


@pytest.mark.parametrize("name", FILES)
def test_a_build_is_one_by_the_published_schema(name):
    command = [Path(sys.executable).with_name("check-jsonschema"), "--builtin-schema", "vendor.cloudbuild", ROOT / name]
    subprocess.run(command, check=True, capture_output=True)


@EVERY_BUILD
def test_nothing_is_wrong(build):
    assert rules.faults(build) == []


def test_the_substitutions_are_those_that_the_trigger_gives():
    assert set(MERGE["substitutions"]) == {"_REGISTRY", "_KFP_REPOSITORY", "_CONFIG", "_SUBMIT"}
    assert MERGE["substitutions"]["_SUBMIT"] == "false"
    assert (ROOT / MERGE["substitutions"]["_CONFIG"]).exists()
    assert "substitutions" not in PULL_REQUEST


def changed(**keys):
    """Returns the merge's build with other keys; None takes a key out. `a__b` is b in a."""
    build = copy.deepcopy(MERGE)
    for path, value in keys.items():
        *folders, key = path.split("__")
        inner = build
        for folder in folders:
            inner = inner[folder] if isinstance(inner, dict) else next(s for s in inner if s["id"] == folder)
        if value is None:
            del inner[key]
        else:
            inner[key] = value
    return build


@pytest.mark.parametrize(
    ("build", "fault"),
    [
        (changed(substitutions__REGION="x"), "The substitution REGION is no _[A-Z0-9_]+."),
        (changed(substitutions___region="x"), "The substitution _region is no _[A-Z0-9_]+."),
        (changed(substitutions___UNUSED="x"), "The substitution _UNUSED is not used."),
        (changed(substitutions___CONFIG=None), "$_CONFIG is no substitution; a shell's variable is written $$_CONFIG."),
        (changed(steps__smoke__args=["-c", "echo $TAG"]), "$TAG is no substitution; a shell's variable is written"),
        (changed(steps__smoke__args=["-c", "echo ${i}"]), "$i is no substitution; a shell's variable is written $$i."),
        (changed(steps__smoke__script="echo $$TAG"), "smoke: nothing is substituted in a script"),
        (changed(steps__smoke__script="echo $_CONFIG"), "smoke: _CONFIG is not in the script's env."),
        (changed(steps__smoke__script="echo ${SHORT_SHA}"), "smoke: SHORT_SHA is not in the script's env."),
        (changed(logsBucket="gs://${PROJECT_ID}_logs"), "Nothing is substituted in logsBucket."),
        (changed(logsBucket="gs://logs"), "CLOUD_LOGGING_ONLY and logsBucket exclude each other."),
        (changed(options__logging=None), "A build with an account of its own needs options.logging or logsBucket."),
        (changed(serviceAccount="x"), "The account is the trigger's to give."),
        (changed(steps__smoke__waitFor=["submit"]), "smoke waits for submit, which is no step before it."),
        (changed(steps__smoke__waitFor=["smoke"]), "smoke waits for smoke, which is no step before it."),
        (changed(steps__smoke__waitFor=None), "smoke has no waitFor."),
        (changed(steps__smoke__timeout=None), "smoke has no timeout."),
        (changed(steps__smoke__id="scan"), "There are two steps scan."),
        (changed(steps__smoke__entrypoint="bash"), "smoke has a script, and args or an entrypoint too."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_found(build, fault):
    assert [found for found in rules.faults(build) if found.startswith(fault)]


@pytest.mark.parametrize("text", ["$$TAG", "$${TAG}", "$_CONFIG", "${_CONFIG}", "$SHORT_SHA", "a$"])
def test_what_is_right_is_not_taken_for_wrong(text):
    build = changed(steps__smoke__env=[f"X={text}"])
    assert rules.faults(build) == []


def test_substitutions_are_made_as_cloud_build_makes_them():
    assert rules.expand("${_A}/$_B/$$C/$D-", {"_A": "a", "_B": "b"}) == "a/b/$C/-"


def test_nothing_is_published_before_all_is_tested():
    assert rules.before(MERGE, "upload") >= {"check", "test", "scan", "smoke", "compile", "store-sbom"}
    assert "upload" in rules.before(MERGE, "submit")
    alone = {step["id"] for step in MERGE["steps"] if not rules.before(MERGE, step["id"])}
    assert alone == {"check", "builder"}


@EVERY_BUILD
def test_the_build_may_take_as_long_as_its_steps(build):
    assert max(rules.longest_path(build).values()) <= rules.seconds(build["timeout"])


@pytest.mark.parametrize("step", STEPS)
def test_images_are_pinned(step):
    assert "@sha256:" in step["name"]


@pytest.mark.parametrize("step", STEPS)
def test_a_script_stops_at_its_first_failure(step):
    shebang, options, *_ = step["script"].splitlines()
    expected = {"#!/usr/bin/env bash": "set -euo pipefail", "#!/bin/sh": "set -eu"}  # sh need not know of pipefail
    assert options == expected[shebang]
    assert shebang.endswith("bash") or " | " not in step["script"]


@pytest.mark.parametrize("step", STEPS)
def test_shellcheck_finds_nothing(step):
    if not shutil.which("shellcheck"):
        pytest.skip("NOT RUN: shellcheck is not installed (Debian's package shellcheck)")
    result = subprocess.run(["shellcheck", "-"], input=step["script"], text=True, capture_output=True, check=False)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    "path", [ROOT / ".ci" / "run", *ROOT.glob("containers/*.sh"), *ROOT.glob("tests/containers/*.sh")], ids=str
)
def test_shellcheck_finds_nothing_in_the_scripts_either(path):
    if not shutil.which("shellcheck"):
        pytest.skip("NOT RUN: shellcheck is not installed (Debian's package shellcheck)")
    result = subprocess.run(["shellcheck", path], text=True, capture_output=True, check=False)
    assert result.returncode == 0, result.stdout
