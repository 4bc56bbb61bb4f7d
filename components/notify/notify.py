"""Tells how a run ended, from the records that its steps left and the status that the pipeline gives."""

from typing import Any

from components import files
from components.cloud import find_run
from components.notify import webhook as webhooks
from components.step import RECORD, duration, log

# The name under which the exit handler runs: its own record is no news.
STEP = "notify"
# The state of a run whose steps all succeeded and whose compare step rejected the model.
REJECTED = "REJECTED"

# A chat cuts a longer message; the log has the whole.
LONGEST_ERROR = 1000


def job_folders(pipeline_root: str, job: str, resource_name: str = "") -> list[str]:
    """Returns where a job's tasks may have put their outputs.

    Args:
        pipeline_root: The pipeline's root folder or `gs://` URI.
        job: The job's id, as the pipeline knows it.
        resource_name: Vertex AI's name of the job, `projects/NUMBER/locations/REGION/pipelineJobs/JOB`; there the
            project's number stands between the root and the job.
    """
    folders = [files.join(pipeline_root, job)]
    if run := find_run(resource_name):
        folders.append(files.join(pipeline_root, run.project, job))
    return folders


def read_records(folders: list[str]) -> list[dict[str, Any]]:
    """Returns the steps' records, oldest first; of a step that was tried several times, its last try."""
    newest: dict[str, dict[str, Any]] = {}
    for folder in folders:
        for uri in files.glob(files.join(folder, "*", RECORD)):
            try:
                record = files.read_json(uri)
                name, started = record["step"], float(record["started"])
                if not isinstance(record.get("seconds", 0.0), int | float):
                    raise TypeError("its seconds are no number")
                if name != STEP and (name not in newest or started > newest[name]["started"]):
                    newest[name] = record
            except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
                # The notice must come out whatever lies there.
                log.warning(f"{uri} is no step's record ({error!r}); left out of the notice.")
    return sorted(newest.values(), key=lambda record: record["started"])


def summarize(
    records: list[dict[str, Any]], *, job: str, state: str, error_message: str | None = None, link: str = ""
) -> dict[str, Any]:
    """Returns the notice of a run that has ended.

    Args:
        records: The steps' records, oldest first.
        job: The job's id.
        state: The pipeline's state: `SUCCEEDED`, `FAILED` or `CANCELLED`.
        error_message: What the pipeline itself says of the failure.
        link: Where people see the job.

    Returns:
        `state` (as given, or `REJECTED` where the run succeeded and the model was found wanting), `failing_step` and
        `error` (None unless it failed), `steps` (state and seconds by name), `job` and `link`.
    """
    steps = {r["step"]: {"state": r.get("state"), "seconds": r.get("seconds")} for r in records}
    notice: dict[str, Any] = {
        "state": state, "failing_step": None, "error": None, "steps": steps, "job": job, "link": link
    }  # fmt: skip
    if state == "SUCCEEDED":
        if any(record.get("verdict") == REJECTED for record in records):
            notice["state"] = REJECTED
        return notice
    # The exit handler runs when all else has ended, so a record that still says RUNNING is of a dead process.
    stopped = [record for record in records if record.get("state") in ("FAILED", "RUNNING")]
    if not stopped:
        said = f" The pipeline says: {error_message}" if error_message else ""
        notice["error"] = f"No step recorded an error: one may not have started. See the log of the job.{said}"
        return notice
    # A recorded error before a silent end: with one step failed, others may have been stopped for it.
    failed = min(stopped, key=lambda record: (record["state"] != "FAILED", record["started"]))
    notice["failing_step"] = failed["step"]
    notice["error"] = failed.get("error") or (
        f"The process of step {failed['step']} ended without a word"
        + (": the run was cancelled." if state == "CANCELLED" else
           ", so it was killed: look in its log for memory running out, or for the machine being taken away.")
    )  # fmt: skip
    return notice


def headline(notice: dict[str, Any]) -> str:
    """Returns a notice as one line: job, state, the steps' times, and the failing step with its error."""
    times = ", ".join(
        f"{name} {duration(step['seconds'])}" for name, step in notice["steps"].items() if step["seconds"] is not None
    )
    line = f"{notice['job']} {notice['state']}" + (f" ({times})" if times else "")
    if not notice["error"]:
        return line
    at = f" at {notice['failing_step']}" if notice["failing_step"] else ""
    return f"{line}{at}: {notice['error']}"


def notify(
    pipeline_root: str,
    job: str,
    *,
    state: str,
    resource_name: str = "",
    error_message: str | None = None,
    webhook: str = "",
) -> dict[str, Any]:
    """Gathers the records of a run, logs how it ended in one line, and posts it to a webhook if there is one.

    Args:
        pipeline_root: The pipeline's root folder or `gs://` URI.
        job: The job's id.
        state: The pipeline's state.
        resource_name: Vertex AI's name of the job, or anything else off Vertex.
        error_message: What the pipeline itself says of the failure.
        webhook: URL to post the notice to; empty for none.

    Returns:
        The notice: see `summarize`.
    """
    records = read_records(job_folders(pipeline_root, job, resource_name))
    run = find_run(resource_name)
    link = run.link if run else ""
    notice = summarize(records, job=job, state=state, error_message=error_message, link=link)
    line = headline(notice)
    (log.error if notice["error"] else log.info)(line)
    if webhook:
        webhooks.post(webhook, notice, " ".join([_shortened(notice, line), link]).strip())
    return notice


def _shortened(notice: dict[str, Any], line: str) -> str:
    """Returns a notice's line on one line indeed, with the end of a long error cut off."""
    error = notice["error"] or ""
    if len(error) > LONGEST_ERROR:
        line = headline(notice | {"error": error[:LONGEST_ERROR] + "…"})
    return " ".join(line.split())
