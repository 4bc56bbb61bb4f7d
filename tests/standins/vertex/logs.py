"""What the jobs' processes print, kept as Cloud Logging would, and its `entries:list`."""

import itertools
import json
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from google.cloud.logging_v2.types import ListLogEntriesRequest

from tests.standins.vertex import protos
from tests.standins.vertex.filters import matches
from tests.standins.vertex.routes import Request, route

SEVERITIES = ("DEFAULT", "DEBUG", "INFO", "NOTICE", "WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY")


@dataclass
class JobLog:
    """The lines of one job, in the order in which they came."""

    job_id: str
    entries: list[dict[str, Any]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, line: str, stream: str) -> None:
        """Adds a line as Vertex's agent does: a JSON object's own severity and time, else those of the stream."""
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        entry = {"timestamp": now, "severity": "ERROR" if stream == "stderr" else "INFO"}
        try:
            payload = json.loads(line)
        except ValueError:
            payload = None
        if isinstance(payload, dict):
            entry |= {"severity": payload.pop("severity", "DEFAULT"), "timestamp": payload.pop("time", now)}
        else:
            payload = {"levelname": entry["severity"], "message": line}
        with self._lock:
            self.lines.append(line)
            self.entries.append(entry | {"jsonPayload": payload})

    def tail(self, count: int = 10) -> str:
        with self._lock:
            return "\n".join(self.lines[-count:])


class Logs:
    """The logs of all jobs, by the numeric id at the end of their name."""

    def __init__(self, project: str) -> None:
        self._project, self._jobs = project, {}

    def open(self, job_id: str) -> JobLog:
        return self._jobs.setdefault(job_id, JobLog(job_id))

    @route("POST", "/v2/entries:list")
    def list_all(self, request: Request) -> dict[str, Any]:
        asked = protos.parse(request.body, ListLogEntriesRequest.pb()())
        every = itertools.chain.from_iterable(self._of(log) for log in list(self._jobs.values()))
        found = [entry for entry in every if matches(asked.filter, partial(_value, entry))]
        found.sort(key=lambda entry: entry["timestamp"], reverse=asked.order_by == "timestamp desc")
        start, size = int(asked.page_token or 0), asked.page_size or 50
        answer: dict[str, Any] = {"entries": found[start : start + size]}
        if start + size < len(found):
            answer["nextPageToken"] = str(start + size)
        return answer

    def _of(self, log: JobLog) -> list[dict[str, Any]]:
        labels = {"job_id": log.job_id, "project_id": self._project, "task_name": "workerpool0-0"}
        name = f"projects/{self._project}/logs/workerpool0-0"
        resource = {"type": "ml_job", "labels": labels}
        return [
            entry | {"logName": name, "resource": resource, "insertId": f"{log.job_id}-{number}"}
            for number, entry in enumerate(list(log.entries))
        ]


class _Severity(str):
    """A severity's name, which compares by its rank."""

    def __ge__(self, other: str) -> bool:
        return SEVERITIES.index(self) >= SEVERITIES.index(other)

    def __gt__(self, other: str) -> bool:
        return SEVERITIES.index(self) > SEVERITIES.index(other)


def _value(entry: dict[str, Any], field: str) -> Any:
    value: Any = entry
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return _Severity(value) if field == "severity" else value
