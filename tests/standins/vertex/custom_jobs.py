"""CustomJobs: what is asked for is checked as Vertex checks it, and run as a process on this machine."""

import json
import signal
import threading
from collections.abc import Callable, Collection
from typing import Any

from google.cloud.aiplatform_v1 import JobState
from google.protobuf.message import Message

from tests.standins.vertex import protos, rules
from tests.standins.vertex.ids import Ids
from tests.standins.vertex.logs import JobLog, Logs
from tests.standins.vertex.machines import is_tpu
from tests.standins.vertex.processes import Process, Processes, without_tpu
from tests.standins.vertex.routes import Request, route
from tests.standins.vertex.store import Store, page

# They make TensorFlow load the TPU's library, which needs a TPU.
TPU_VARIABLES = ("NEXT_PLUGGABLE_DEVICE_USE_C_API", "TF_PLUGGABLE_DEVICE_LIBRARY_PATH")
ENDED = (JobState.JOB_STATE_SUCCEEDED, JobState.JOB_STATE_FAILED, JobState.JOB_STATE_CANCELLED)
POLL_SECONDS = 0.02


class CustomJob:
    """One job.

    Attributes:
        message: The resource as a client sees it.
        log: What its process printed.
        tries: Exit status of each try that has ended.
        killed: Whether `kill_first_try` has struck.
        ended: Set when the job is in its last state.
    """

    def __init__(self, message: Message, log: JobLog) -> None:
        self.message, self.log = message, log
        self.tries: list[int] = []
        self.killed = False
        self.cancelled = threading.Event()
        self.ended = threading.Event()
        self.process: Process | None = None

    @property
    def id(self) -> str:
        return self.message.name.rpartition("/")[2]

    @property
    def state(self) -> str:
        return JobState(self.message.state).name

    @property
    def location(self) -> str:
        return self.message.name.split("/")[3]


class CustomJobs:
    """The jobs of the stand-in.

    Args:
        project_number: What `CLOUD_ML_PROJECT_ID` says.
        restarts: How often a failed process is started again in place.
        stockout: Regions that are out of TPUs.
        kill_first_try: Says of a running job whether its process is to be killed now, once.
        only_gs: Whether an output directory must be a gs:// URI.

    Attributes:
        preempted: Regions where a job that was killed is not started again, for want of another machine.
    """

    def __init__(
        self,
        processes: Processes,
        logs: Logs,
        ids: Ids,
        *,
        project_number: str,
        restarts: int,
        stockout: Collection[str],
        kill_first_try: Callable[[CustomJob], object] | None,
        only_gs: bool,
    ) -> None:
        self._processes, self._logs, self._ids = processes, logs, ids
        self._project_number, self._only_gs = project_number, only_gs
        self.restarts, self.stockout, self.kill_first_try = restarts, stockout, kill_first_try
        self.preempted: set[str] = set()
        self._store, self.jobs = Store("CustomJob"), []

    def find(self, name: str) -> CustomJob:
        return next(job for job in self.jobs if job.message is self._store.get(name))

    @route("POST", "{location}/customJobs")
    def create(self, request: Request) -> Message:
        message = protos.parse(request.body, protos.new("CustomJob"))
        rules.check_custom_job(message, request.location, only_gs=self._only_gs)
        message.name = f"{request.parent}/customJobs/{self._ids.new()}"
        message.state = JobState.JOB_STATE_PENDING
        message.create_time.GetCurrentTime()
        job = CustomJob(self._store.add(message), self._logs.open(message.name.rpartition("/")[2]))
        self.jobs.append(job)
        answer = protos.new("CustomJob")
        answer.CopyFrom(message)
        threading.Thread(target=self._execute, args=(job,), daemon=True).start()
        return answer

    @route("GET", "{location}/customJobs/{id}")
    def get(self, request: Request) -> Message:
        return self._store.get(f"{request.parent}/customJobs/{request.id}")

    @route("GET", "{location}/customJobs")
    def list_all(self, request: Request) -> dict[str, Any]:
        return page(self._store.all(request.parent), "customJobs", request.query)

    @route("POST", "{location}/customJobs/{id}:cancel")
    def cancel(self, request: Request) -> dict[str, Any]:
        job = self.find(f"{request.parent}/customJobs/{request.id}")
        job.cancelled.set()
        if job.process:
            threading.Thread(target=job.process.stop, daemon=True).start()
        return {}

    def _execute(self, job: CustomJob) -> None:
        message = job.message
        if job.location in self.stockout and is_tpu(message.job_spec):
            region = job.location
            sentence = f"Resources are insufficient in region: {region}. Please try a different region."
            self._end(job, JobState.JOB_STATE_FAILED, 8, sentence)
            return
        message.state = JobState.JOB_STATE_RUNNING
        message.start_time.GetCurrentTime()
        for left in reversed(range(self.restarts + 1)):
            status = self._try(job)
            if job.killed and job.location in self.preempted:
                sentence = f"STOCKOUT: the machine in {job.location} was taken away, and there is no other."
                self._end(job, JobState.JOB_STATE_FAILED, 8, sentence)
                return
            if job.killed and len(job.tries) == 1 and not job.cancelled.is_set():
                status = self._try(job)  # as after a worker's loss: same place, same output directory
            if job.cancelled.is_set():
                self._end(job, JobState.JOB_STATE_CANCELLED, 1, "The job was cancelled.")
                return
            if status == 0:
                self._end(job, JobState.JOB_STATE_SUCCEEDED)
                return
            if left:
                job.log.add(f"workerpool0-0 exited with a non-zero status of {status}; restarting it.", "stderr")
        self._end(
            job,
            JobState.JOB_STATE_FAILED,
            3,
            f"The replica workerpool0-0 exited with a non-zero status of {status}. Termination reason: Error.\n"
            f"{job.log.tail()}",
        )

    def _try(self, job: CustomJob) -> int:
        container = job.message.job_spec.worker_pool_specs[0].container_spec
        finished = threading.Event()

        def started(process: Process) -> None:
            job.process = process
            if job.cancelled.is_set():
                process.stop()
            elif self.kill_first_try and not job.killed:
                threading.Thread(target=self._kill_when_due, args=(job, process, finished), daemon=True).start()

        command = without_tpu([*container.command, *container.args])
        status = self._processes.run(f"custom-job-{job.id}", command, self._environment(job), job.log, started)
        finished.set()
        job.tries.append(status)
        return status

    def _kill_when_due(self, job: CustomJob, process: Process, finished: threading.Event) -> None:
        while not finished.wait(POLL_SECONDS):
            if self.kill_first_try(job):
                job.killed = process.running
                process.signal(signal.SIGKILL)
                return

    def _environment(self, job: CustomJob) -> dict[str, str]:
        spec = job.message.job_spec
        host = f"cmle-training-workerpool0-{job.id}-0:2222"
        cluster = {
            "cluster": {"workerpool0": [host]},
            "environment": "cloud",
            "task": {"type": "workerpool0", "index": 0},
        }
        environment = {"CLOUD_ML_PROJECT_ID": self._project_number, "CLUSTER_SPEC": json.dumps(cluster)}
        if base := spec.base_output_directory.output_uri_prefix.rstrip("/"):
            environment["AIP_MODEL_DIR"] = f"{base}/model/"
            environment["AIP_CHECKPOINT_DIR"] = f"{base}/checkpoints/"
            environment["AIP_TENSORBOARD_LOG_DIR"] = f"{base}/logs/"
        given = {variable.name: variable.value for variable in spec.worker_pool_specs[0].container_spec.env}
        return environment | {name: value for name, value in given.items() if name not in TPU_VARIABLES}

    def _end(self, job: CustomJob, state: JobState, code: int = 0, error: str = "") -> None:
        message = job.message
        if error:
            message.error.code, message.error.message = code, error
        message.end_time.GetCurrentTime()
        message.state = state
        job.ended.set()
