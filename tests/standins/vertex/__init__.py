"""Vertex AI on this machine: its REST service, for the real SDK, Google's launchers and the logging client.

Requests are parsed strictly into the real protos and checked by the rules that Vertex AI documents. CustomJobs and the
tasks of pipelines run as processes here, in the place of containers on machines in the cloud; what is asked of a TPU
slice is done on CPUs (see `processes.without_tpu` and `custom_jobs.TPU_VARIABLES`, the only two such places).

Example:
    with vertex(tmp_path, run_pipelines=True) as service:
        aiplatform.init(
            api_endpoint=service.url, api_transport="rest", credentials=AnonymousCredentials(),
            project=service.project, location="us-central1",
        )
"""

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from tests.standins.vertex import protos
from tests.standins.vertex.custom_jobs import CustomJob, CustomJobs
from tests.standins.vertex.errors import ApiError
from tests.standins.vertex.ids import Ids
from tests.standins.vertex.logs import Logs
from tests.standins.vertex.metadata import Metadata
from tests.standins.vertex.models import Endpoints, Models
from tests.standins.vertex.operations import Operations
from tests.standins.vertex.pipeline_jobs import PipelineJobs
from tests.standins.vertex.processes import CHILD_PATH, Processes
from tests.standins.vertex.routes import Request
from tests.standins.vertex.schedules import Schedules
from tests.standins.vertex.server import Accounts, Server

__all__ = ["CustomJob", "Vertex", "vertex"]

HOSTS = ("*-aiplatform.googleapis.com", "logging.googleapis.com", "cloudresourcemanager.googleapis.com")


class Vertex:
    """A running stand-in.

    Attributes:
        folder: Where its processes run.
        mount: The folder that plays `/gcs`.
        requests: Every request as received.
        busy: Says of a request whether it is answered with 503.
        custom_jobs, pipeline_jobs, schedules, models, endpoints, metadata, logs: The parts of the service, to look
            into from a test.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        project: str,
        project_number: str,
        mount: Path,
        only_gs: bool,
        run_pipelines: bool,
        stockout: Collection[str],
        kill_first_try: Callable[[CustomJob], object] | None,
        restarts: int,
        longest_backoff: float,
    ) -> None:
        self.folder, self.mount = folder, mount
        self.project, self.project_number = project, project_number
        self.requests: list[Request] = []
        self.busy: Callable[[Request], object] | None = None
        ids = Ids()
        self.logs, self.metadata, operations = Logs(project), Metadata(ids), Operations(ids)
        self._processes = Processes(folder, environment, mount)
        self.custom_jobs = CustomJobs(
            self._processes,
            self.logs,
            ids,
            project_number=project_number,
            restarts=restarts,
            stockout=stockout,
            kill_first_try=kill_first_try,
            only_gs=only_gs,
        )
        self.pipeline_jobs = PipelineJobs(
            self._processes,
            self.logs,
            self.metadata,
            operations,
            ids,
            run=run_pipelines,
            only_gs=only_gs,
            mount=mount,
            longest_backoff=longest_backoff,
        )
        self.models = Models(operations, ids, only_gs=only_gs)
        self.endpoints = Endpoints(self.models, operations, ids)
        self.schedules = Schedules(operations, ids, only_gs=only_gs)
        services = [
            self.custom_jobs,
            self.pipeline_jobs,
            self.models,
            self.endpoints,
            self.schedules,
            self.metadata,
            self.logs,
            operations,
            Accounts(project, project_number),
        ]
        self._server = Server(services, self._canonical, self._receive)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def routes(self) -> dict[str, int]:
        """What `edge` needs to know of it."""
        return dict.fromkeys(HOSTS, self.port)

    @property
    def environment(self) -> dict[str, str]:
        """Variables that make Google's clients in another process use REST, which is all that this service speaks."""
        return {"PYTHONPATH": str(CHILD_PATH), "GOOGLE_CLOUD_DISABLE_GRPC": "true"}

    @property
    def process_environment(self) -> dict[str, str]:
        """What every process finds in its environment: may be added to, say that of an `edge` made with `routes`."""
        return self._processes.environment

    @property
    def jobs(self) -> list[CustomJob]:
        """The custom jobs, oldest first."""
        return list(self.custom_jobs.jobs)

    def pipeline_job(self, job_id: str) -> Message:
        """Returns a copy of a pipeline job's resource."""
        with self.pipeline_jobs.store.lock:
            found = next(job for job in self.pipeline_jobs.store.all() if job.name.endswith(f"/{job_id}"))
            copy = protos.new("PipelineJob")
            copy.CopyFrom(found)
            return copy

    def wait(self, job_id: str, timeout: float = 60) -> Message:
        """Waits for the end of a pipeline job that is run, and returns it."""
        run = next(run for name, run in self.pipeline_jobs.runs.items() if name.endswith(f"/{job_id}"))
        if not run.ended.wait(timeout):
            raise TimeoutError(f"{job_id} has not ended within {timeout} s")
        return self.pipeline_job(job_id)

    def add_tensorboard(self, location: str, id: str, **fields: Any) -> str:
        """Makes a tensorboard and returns its name."""
        name = f"projects/{self.project_number}/locations/{location}/tensorboards/{id}"
        return self.metadata.tensorboards.add(protos.new("Tensorboard", name=name, **fields)).name

    def stop(self) -> None:
        """Kills what still runs, and closes the port."""
        self._processes.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _receive(self, request: Request) -> None:
        self.requests.append(request)
        if self.busy and self.busy(request):
            raise ApiError("UNAVAILABLE", "The service is busy.")

    def _canonical(self, project: str) -> str | None:
        return self.project_number if project in (self.project, self.project_number) else None


@contextlib.contextmanager
def vertex(
    folder: Path | str,
    *,
    environment: Mapping[str, str] | None = None,
    project: str = "test-project",
    project_number: str = "123456789012",
    mount: Path | str | None = None,
    only_gs: bool = True,
    run_pipelines: bool = False,
    stockout: Collection[str] = (),
    kill_first_try: Callable[[CustomJob], object] | None = None,
    restarts: int = 0,
    longest_backoff: float = 0.1,
) -> Iterator[Vertex]:
    """Runs a stand-in.

    Args:
        folder: Where its processes run and leave what they write.
        environment: What every process finds in its environment, as an image's own variables; nothing else of this
            process's environment is passed on but PATH.
        project: The one project, by id.
        project_number: And by number, under which resources are named.
        mount: The folder that plays `/gcs` for KFP's executor; one below `folder` unless given.
        only_gs: Refuse pipeline roots and output directories other than gs:// URIs.
        run_pipelines: Execute pipeline jobs, not just hold them.
        stockout: Regions where no TPU is to be had: jobs fail there.
        kill_first_try: Called again and again with a running CustomJob: once it says yes, the job's process is killed
            (SIGKILL), and started again in place, once a job.
        restarts: How often a CustomJob's process that failed is started again in place.
        longest_backoff: Seconds that a pipeline's retry waits at most.
    """
    folder = Path(folder)
    place = Path(mount) if mount else folder / "gcs"
    for needed in (folder, place):
        needed.mkdir(parents=True, exist_ok=True)
    service = Vertex(
        folder,
        environment or {},
        project,
        project_number,
        place,
        only_gs,
        run_pipelines,
        stockout,
        kill_first_try,
        restarts,
        longest_backoff,
    )
    try:
        yield service
    finally:
        service.stop()
