import json
from pathlib import Path

import pytest

from components.notify.notify import job_folders, notify, read_records

RESOURCE = "projects/123456/locations/us-central1/pipelineJobs/job-1"


@pytest.fixture
def record(tmp_path: Path):
    """Writes a step's record as `components.step` does."""

    def write(step: str, state: str, started: float, *, folder: str = "job-1", task: str = "", **fields) -> None:
        target = tmp_path / folder / (task or step) / "step.json"
        target.parent.mkdir(parents=True)
        target.write_text(json.dumps({"step": step, "state": state, "started": started, "seconds": 2.5} | fields))

    return write


def test_success(tmp_path, record):
    record("prepare", "SUCCEEDED", 1)
    record("compare", "SUCCEEDED", 2, verdict="PASSED")
    record("notify", "RUNNING", 3)
    assert notify(str(tmp_path), "job-1", state="SUCCEEDED") == {
        "state": "SUCCEEDED",
        "failing_step": None,
        "error": None,
        "steps": {
            "prepare": {"state": "SUCCEEDED", "seconds": 2.5},
            "compare": {"state": "SUCCEEDED", "seconds": 2.5},
        },
        "job": "job-1",
        "link": "",
    }


def test_rejected_is_no_success(tmp_path, record):
    record("compare", "SUCCEEDED", 2, verdict="REJECTED")
    notice = notify(str(tmp_path), "job-1", state="SUCCEEDED")
    assert (notice["state"], notice["failing_step"], notice["error"]) == ("REJECTED", None, None)


def test_failed_step_and_its_error(tmp_path, record):
    record("prepare", "SUCCEEDED", 1)
    record("train", "FAILED", 2, error="The loss is NaN.")
    notice = notify(str(tmp_path), "job-1", state="FAILED", error_message="Task exit-handler-1 failed.")
    assert (notice["state"], notice["failing_step"], notice["error"]) == ("FAILED", "train", "The loss is NaN.")


def test_a_killed_process_is_the_failing_step(tmp_path, record):
    record("prepare", "SUCCEEDED", 1)
    record("train", "RUNNING", 2)
    notice = notify(str(tmp_path), "job-1", state="FAILED")
    assert notice["failing_step"] == "train"
    assert "killed" in notice["error"]
    assert "memory" in notice["error"]


def test_a_recorded_error_comes_before_a_silent_end(tmp_path, record):
    record("train", "RUNNING", 1)
    record("evaluate", "FAILED", 2, error="No test split.")
    assert notify(str(tmp_path), "job-1", state="FAILED")["failing_step"] == "evaluate"


def test_cancelled_is_said_so(tmp_path, record):
    record("train", "RUNNING", 1)
    notice = notify(str(tmp_path), "job-1", state="CANCELLED")
    assert notice["state"] == "CANCELLED"
    assert "cancelled" in notice["error"]


def test_failure_before_any_step_gives_the_pipelines_own_words(tmp_path):
    notice = notify(str(tmp_path), "job-1", state="FAILED", error_message="Image not found.")
    assert notice["failing_step"] is None
    assert "Image not found." in notice["error"]
    assert notice["steps"] == {}


def test_vertex_layout_and_the_last_try_of_a_step(tmp_path, record):
    record("train", "RUNNING", 10, folder="123456/job-1", task="train_-111")
    record("train", "SUCCEEDED", 20, folder="123456/job-1", task="train_222")
    notice = notify(str(tmp_path), "job-1", state="SUCCEEDED", resource_name=RESOURCE)
    assert notice["steps"] == {"train": {"state": "SUCCEEDED", "seconds": 2.5}}


def test_other_jobs_are_left_alone(tmp_path, record):
    record("train", "FAILED", 1, folder="job-0", error="old")
    assert notify(str(tmp_path), "job-1", state="SUCCEEDED")["steps"] == {}


def test_folders():
    assert job_folders("gs://b/root/", "job-1", RESOURCE) == ["gs://b/root/job-1", "gs://b/root/123456/job-1"]
    assert job_folders("/root", "job-1", "local-pipeline-exit-handler-1") == ["/root/job-1"]


def test_a_broken_record_does_not_silence_the_notice(tmp_path, record):
    record("train", "FAILED", 1, error="broken")
    for name, content in (("x", "{"), ("y", "[]"), ("z", "{}")):
        (tmp_path / "job-1" / name).mkdir()
        (tmp_path / "job-1" / name / "step.json").write_text(content)
    assert [r["step"] for r in read_records([str(tmp_path / "job-1")])] == ["train"]
