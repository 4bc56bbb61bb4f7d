"""A worker's answers, errors and deaths, over real processes."""

import pytest

from components.errors import ConfigError, ProgramError
from components.worker import Worker, WorkerError

SERVER = """
import os, sys, traceback
from components import errors, step, worker

class Special(errors.ProgramError):
    pass

def do(job):
    print("noise on standard output")
    match job["do"]:
        case "add":
            return {"sum": job["a"] + job["b"]}
        case "refuse":
            step.log.info("a line of no interest")
            try:
                1 / 0
            except ZeroDivisionError:
                step.log.info(traceback.format_exc())
            raise errors.ConfigError("training.epochs is 0.")
        case "special":
            raise Special("too large")
        case "crash":
            raise RuntimeError("a fault of ours")
        case "abort":
            os.abort()
        case "kill":
            os.kill(os.getpid(), 9)

worker.serve(do)
"""


@pytest.fixture
def worker(tmp_path, monkeypatch):
    (tmp_path / "adder.py").write_text(SERVER, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Worker("adder") as process:
        yield process


def test_it_answers_job_after_job_whatever_is_printed(worker):
    assert worker.do({"do": "add", "a": 1, "b": 2}) == {"sum": 3}
    assert worker.do({"do": "add", "a": "é\n", "b": "\u2028"}) == {"sum": "é\n\u2028"}


def test_an_error_is_raised_here_as_the_kind_it_was_and_the_worker_goes_on(worker):
    with pytest.raises(ConfigError, match=r"training\.epochs is 0") as caught:
        worker.do({"do": "refuse"})
    (note,) = caught.value.__notes__
    assert note.startswith("Traceback")
    assert "ZeroDivisionError" in note
    with pytest.raises(ProgramError, match="too large"):
        worker.do({"do": "special"})
    assert worker.do({"do": "add", "a": 1, "b": 1}) == {"sum": 2}


def test_a_fault_of_ours_shows_its_traceback(worker):
    with pytest.raises(WorkerError, match="a fault of ours") as caught:
        worker.do({"do": "crash"})
    assert caught.value.fault == "ours"
    with pytest.raises(WorkerError):  # also for the next job, at once
        worker.do({"do": "add", "a": 1, "b": 1})


def test_a_library_that_aborts_takes_the_worker_alone(worker):
    with pytest.raises(WorkerError, match="signal 6"):
        worker.do({"do": "abort"})


def test_one_that_was_killed_says_why_that_happens(worker):
    with pytest.raises(WorkerError, match="signal 9, as where a machine's memory runs out"):
        worker.do({"do": "kill"})


def test_a_module_that_is_not_there_is_said(tmp_path):
    with Worker("components.nowhere") as process, pytest.raises(WorkerError, match="No module named"):
        process.do({})
