"""The components evaluate, compare and notify as KFP runs them: in processes of their own, in a pipeline."""

import json
from pathlib import Path

import pytest
from kfp import dsl, local

from components.compare.component import compare
from components.evaluate.component import evaluate
from components.notify.component import notify

# Right: 0, 1, 3, 5. Two classes, so that there is a ROC curve too.
LIT, LABELS, NAMES = [0, 1, 1, 0, 0, 1], [0, 1, 0, 0, 1, 1], ["no", "yes"]


@dsl.component(base_image="python", packages_to_install=[], install_kfp_package=False)
def release(verdict: str):
    print(f"released, {verdict}")


@dsl.pipeline(name="judge")
def judge(dataset: str, model: str, min_accuracy: float, root: str):
    notice = notify(pipeline_root=root, job=dsl.PIPELINE_JOB_NAME_PLACEHOLDER, webhook="")
    with dsl.ExitHandler(notice):
        data = dsl.importer(artifact_uri=dataset, artifact_class=dsl.Dataset)
        trained = dsl.importer(artifact_uri=model, artifact_class=dsl.Model)
        found = evaluate(dataset=data.output, model=trained.output, evaluation_batch_size=4)
        verdict = compare(metrics=found.outputs["metrics"], min_accuracy=min_accuracy)
        with dsl.If(verdict.outputs["Output"] == "PASSED"):
            release(verdict=verdict.outputs["Output"])


def run_judge(root: Path, run, min_accuracy: float) -> Path:
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(root), raise_on_error=False)
    judge(dataset=run.dataset, model=run.model, min_accuracy=min_accuracy, root=str(root))
    (job,) = root.glob("judge-*")
    return job


def metadata(job: Path, step: str, output: str) -> dict:
    executor_output = json.loads((job / step / "executor_output.json").read_text())
    return executor_output["artifacts"][output]["artifacts"][0]["metadata"]


@pytest.mark.slow
def test_passed(tmp_path, image_run):
    run = image_run(LIT, LABELS, NAMES)
    job = run_judge(tmp_path / "passed", run, 0.5)

    figures = json.loads((job / "evaluate" / "metrics").read_text())
    assert figures["accuracy"] == metadata(job, "evaluate", "metrics")["accuracy"] == 4 / 6
    assert figures["confusion_matrix"] == [[2, 1], [1, 2]]
    logged = metadata(job, "evaluate", "classification")
    assert [row["row"] for row in logged["confusionMatrix"]["rows"]] == [[2, 1], [1, 2]]
    assert logged["confidenceMetrics"][0]["confidenceThreshold"] == pytest.approx(1.0)
    assert json.loads((job / "evaluate" / "classification").read_text()) == logged
    assert (job / "evaluate" / "report.html").read_text().startswith("<!doctype html>")
    record = json.loads((job / "evaluate" / "step.json").read_text())
    assert record["metrics"]["accuracy"] == 4 / 6
    assert sorted(file.name for file in (job / "evaluate").iterdir()) == [
        "classification", "executor_output.json", "metrics", "report.html", "step.json",
    ]  # fmt: skip
    assert json.loads((job / "compare" / "verdict").read_text()) == {
        "verdict": "PASSED",
        "accuracy": 4 / 6,
        "min_accuracy": 0.5,
    }
    assert (job / "release").exists()
    notice = json.loads((job / "notify" / "notice").read_text())
    assert (notice["state"], list(notice["steps"])) == ("SUCCEEDED", ["evaluate", "compare"])


@pytest.mark.slow
def test_rejected_and_failed(tmp_path, image_run):
    run = image_run(LIT, LABELS, NAMES)
    job = run_judge(tmp_path / "rejected", run, 0.9)
    assert not (job / "release").exists()
    assert json.loads((job / "notify" / "notice").read_text())["state"] == "REJECTED"

    run.resave(class_names=("yes", "no"))
    job = run_judge(tmp_path / "failed", run, 0.5)
    notice = json.loads((job / "notify" / "notice").read_text())
    assert (notice["state"], notice["failing_step"]) == ("FAILED", "evaluate")
    assert "class names, in the order of the logits" in notice["error"]
    assert not (job / "compare").exists()
    assert sorted(file.name for file in (job / "evaluate").iterdir()) == ["step.json"]
