"""A step's record, whatever ends the step, and what a resumed run makes of it."""

import json

import pytest

from components import step
from components.errors import ConsistencyError, DataError
from pipelines.local.folder import RunFolder

# The record of a step that was killed: KFP has not cached it, and the steps before it stay as they are.
UNFINISHED = '{"step": "train", "started": 1, "state": "RUNNING", "outputs": {}}'


def run_step(folder, body, name="train"):
    output = folder / "steps" / "job-1" / name / "model"
    output.mkdir(parents=True)
    with step.running(name, model=str(output)):
        (output / "a.txt").write_text("12345")
        body()
    return output


def record(folder, name="train"):
    return json.loads((folder / "steps" / "job-1" / name / "step.json").read_text())


@pytest.mark.parametrize(
    ("error", "fault", "text"),
    [
        (DataError("Row 3 is broken."), "user", "Row 3 is broken."),
        (ConsistencyError("It answers otherwise."), "ours", "It answers otherwise."),
        (KeyError("x"), "ours", "KeyError: 'x'"),
        (SystemExit(0), "ours", "SystemExit: 0"),
    ],
)
def test_whatever_ends_a_step_early_is_recorded_and_exits_with_1(error, fault, text, tmp_path):
    def body():
        raise error

    with pytest.raises(SystemExit) as raised:
        run_step(tmp_path, body)

    assert raised.value.code == 1
    found = record(tmp_path)
    assert (found["state"], found["fault"], found["error"]) == ("FAILED", fault, text)


@pytest.mark.parametrize(
    ("damage", "kept"),
    [
        (lambda output: None, True),
        (lambda output: (output / "a.txt").unlink(), False),
        (lambda output: (output / "a.txt").write_text("123"), False),
        (lambda output: (output.parent / "step.json").write_text(UNFINISHED), True),
    ],
)  # fmt: skip
def test_a_step_whose_output_has_changed_is_not_taken_from_the_cache(damage, kept, tmp_path):
    output = run_step(tmp_path, lambda: None)
    folder = RunFolder(tmp_path)
    folder.cache.mkdir()
    damage(output)

    folder.forget_broken_steps()

    assert folder.cache.exists() == kept


def test_a_damaged_record_counts_as_no_record(tmp_path):
    output = run_step(tmp_path, lambda: None)
    (output.parent / "step.json").write_text("{")
    assert RunFolder(tmp_path).records() == {}
