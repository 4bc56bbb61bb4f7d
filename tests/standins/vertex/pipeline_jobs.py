"""PipelineJobs as resources: created by the rules, held or run, listed, cancelled."""

import threading
from datetime import UTC, datetime
from typing import Any

from google.cloud.aiplatform_v1 import PipelineState
from google.protobuf import empty_pb2
from google.protobuf.message import Message

from tests.standins.vertex import protos, rules
from tests.standins.vertex.errors import ApiError
from tests.standins.vertex.ids import Ids
from tests.standins.vertex.logs import Logs
from tests.standins.vertex.metadata import Metadata
from tests.standins.vertex.operations import Operations
from tests.standins.vertex.pipeline_runs import PipelineRun
from tests.standins.vertex.processes import Processes
from tests.standins.vertex.routes import Request, route
from tests.standins.vertex.store import Store, page, value_of

ENDED = (
    PipelineState.PIPELINE_STATE_SUCCEEDED,
    PipelineState.PIPELINE_STATE_FAILED,
    PipelineState.PIPELINE_STATE_CANCELLED,
)


class PipelineJobs:
    """The pipeline jobs of the stand-in.

    Args:
        run: Whether a job's graph is executed; otherwise it is held, said to be running.
        options: What `PipelineRun` takes besides the job.
    """

    def __init__(
        self,
        processes: Processes,
        logs: Logs,
        metadata: Metadata,
        operations: Operations,
        ids: Ids,
        *,
        run: bool,
        only_gs: bool,
        **options: Any,
    ) -> None:
        self._processes, self._logs, self._metadata = processes, logs, metadata
        self._operations, self._ids, self._only_gs, self._options = operations, ids, only_gs, options
        self.run = run
        self.store, self.runs = Store("PipelineJob"), {}

    @route("POST", "{location}/pipelineJobs")
    def create(self, request: Request) -> Message:
        job = protos.parse(request.body, protos.new("PipelineJob"))
        job_id = request.query.get("pipelineJobId", "")
        rules.check_pipeline_job(job, job_id, only_gs=self._only_gs)
        spec = rules.pipeline_spec(job)
        pipeline = spec.pipeline_info.name
        job.name = f"{request.parent}/pipelineJobs/{job_id or f'{pipeline}-{datetime.now(UTC):%Y%m%d%H%M%S}'}"
        with self.store.lock:
            self.store.add(job)
            job.display_name = job.display_name or pipeline
            job.runtime_config.gcs_output_directory = (
                job.runtime_config.gcs_output_directory or spec.default_pipeline_root
            )
            job.create_time.GetCurrentTime()
            job.state = PipelineState.PIPELINE_STATE_RUNNING
            self._add_contexts(job, request.parent, pipeline)
            answer = _copy(job)
            if self.run:
                run = PipelineRun(
                    job, spec, self._processes, self._logs, self._metadata, self._ids, self.store.lock, **self._options
                )
                self.runs[job.name] = run
                threading.Thread(target=run.execute, daemon=True).start()
        return answer

    @route("GET", "{location}/pipelineJobs/{id}")
    def get(self, request: Request) -> Message:
        with self.store.lock:
            return _copy(self.store.get(_name(request)))

    @route("GET", "{location}/pipelineJobs")
    def list_all(self, request: Request) -> dict[str, Any]:
        with self.store.lock:
            jobs = [_copy(job) for job in self.store.all(request.parent)]
            return page(jobs, "pipelineJobs", request.query, _value_of)

    @route("POST", "{location}/pipelineJobs/{id}:cancel")
    def cancel(self, request: Request) -> dict[str, Any]:
        with self.store.lock:
            job = self.store.get(_name(request))
            if job.state in ENDED:
                raise ApiError("FAILED_PRECONDITION", f"{job.name} has ended: it can't be cancelled.")
            if run := self.runs.get(job.name):
                job.state = PipelineState.PIPELINE_STATE_CANCELLING
                run.cancel()
            else:
                job.state = PipelineState.PIPELINE_STATE_CANCELLED
        return {}

    @route("DELETE", "{location}/pipelineJobs/{id}")
    def delete(self, request: Request) -> Message:
        with self.store.lock:
            job = self.store.get(_name(request))
            if job.state not in ENDED:
                raise ApiError("FAILED_PRECONDITION", f"{job.name} has not ended: cancel it first.")
            self.store.remove(job.name)
        return self._operations.start(job.name, protos.new("DeleteOperationMetadata"), empty_pb2.Empty())

    def _add_contexts(self, job: Message, parent: str, pipeline: str) -> None:
        """Puts the run into ML Metadata, where an experiment finds it."""
        whole = self._metadata.create(
            "contexts", parent, pipeline, display_name=pipeline, schema_title="system.Pipeline", schema_version="0.0.1"
        )
        name = job.name.rpartition("/")[2]
        run = self._metadata.create(
            "contexts", parent, name, display_name=name, schema_title="system.PipelineRun", schema_version="0.0.1"
        )
        run.parent_contexts.append(whole.name)
        job.job_detail.pipeline_context.CopyFrom(whole)
        job.job_detail.pipeline_run_context.CopyFrom(run)


def _name(request: Request) -> str:
    return f"{request.parent}/pipelineJobs/{request.id}"


def _value_of(job: Message, field: str) -> Any:
    return value_of(job, "pipeline_spec.pipelineInfo.name" if field == "pipeline_name" else field)


def _copy(message: Message) -> Message:
    result = type(message)()
    result.CopyFrom(message)
    return result
