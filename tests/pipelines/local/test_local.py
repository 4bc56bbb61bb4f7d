"""Following KFP's output, without running it: logs, states, and what is shown."""

import io
from pathlib import Path

from google.protobuf import json_format
from rich.console import Console

from pipelines.config import load
from pipelines.live import display
from pipelines.local.folder import RunFolder
from pipelines.local.platform import ThisMachine
from pipelines.local.view import STEPS, RunView
from pipelines.training import training_pipeline
from pipelines.vertex.steps import step_names

# Lines as kfp 2.17.3 and our steps print them.
LINES = """\
15:28:24.083 - INFO - Running pipeline: \x1b[95m'mnist-sample'\x1b[0m
15:28:24.086 - INFO - Executing task \x1b[96m'prepare'\x1b[0m
15:28:24.087 - INFO - Streamed logs:

    [KFP Executor 2026-11-30 15:28:25,300 INFO]: Got executor_input: {"severity" is no record of ours
    {"severity": "INFO", "time": "2026-11-30T15:28:26Z", "step": "prepare", "message": "5 rows \\u00b7 é", "event": "progress"}
    Traceback (most recent call last):
15:28:26.886 - ERROR - Task \x1b[96m'prepare'\x1b[0m finished with status \x1b[91mFAILURE\x1b[0m
15:28:26.900 - INFO - Task evaluate cache hit (key=0123456789ab); skipping execution.
15:28:26.901 - INFO - Executing task \x1b[96m'notify'\x1b[0m
15:28:26.990 - INFO - Task \x1b[96m'notify'\x1b[0m finished with status \x1b[92mSUCCESS\x1b[0m
""".splitlines(keepends=True)  # noqa: E501


def test_states_messages_and_logs_follow_kfps_output(tmp_path):
    (tmp_path / "logs").mkdir()
    view = RunView(RunFolder(tmp_path))

    changed = [name for line in LINES if (name := view.read(line))]
    view.close()

    assert changed == ["prepare", "prepare", "evaluate", "notify", "notify"]
    states = {name: step.state for name, step in view.steps.items()}
    assert states == {
        "fingerprint": "WAITING",
        "prepare": "FAILED",
        "train": "WAITING",
        "evaluate": "CACHED",
        "compare": "WAITING",
        "export": "WAITING",
        "notify": "SUCCEEDED",
    }
    assert view.steps["prepare"].message == "5 rows · é"
    log = (tmp_path / "logs" / "prepare.log").read_text(encoding="utf-8").splitlines()
    assert "2026-11-30T15:28:26Z INFO 5 rows · é" in log
    assert "Traceback (most recent call last):" in log
    assert not any("Running pipeline" in line for line in log)


def test_output_that_is_no_terminal_gets_a_line_per_change(tmp_path):
    (tmp_path / "logs").mkdir()
    view = RunView(RunFolder(tmp_path))
    out = io.StringIO()
    with display(view.steps, Console(file=out, width=100)) as show:
        for line in LINES:
            show(view.read(line))
    view.close()
    assert [line.split()[1] for line in out.getvalue().splitlines()] == [
        "prepare",
        "prepare",
        "evaluate",
        "notify",
        "notify",
    ]


def test_the_steps_are_those_of_the_graph():
    graph = training_pipeline(load(Path("configs/mnist_sample.yaml")), ThisMachine())
    assert sorted(STEPS) == sorted(step_names(json_format.MessageToDict(graph.pipeline_spec)))
