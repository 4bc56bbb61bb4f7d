"""Executes a compiled pipeline: its graph of tasks, each container a process on this machine."""

import json
import threading
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.cloud.aiplatform_v1 import Artifact, Event, Execution, PipelineState, PipelineTaskDetail
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from tests.standins.vertex import protos
from tests.standins.vertex.conditions import holds
from tests.standins.vertex.ids import Ids
from tests.standins.vertex.logs import Logs
from tests.standins.vertex.metadata import Metadata
from tests.standins.vertex.placeholders import Resolver, local_path
from tests.standins.vertex.processes import Process, Processes

State = PipelineTaskDetail.State
WORDS = {State.SUCCEEDED: "SUCCEEDED", State.FAILED: "FAILED", State.CANCELLED: "CANCELLED"}
FAIL_FAST = 2


@dataclass
class Values:
    """Parameters and artifacts by name: what a task takes, or what it has made."""

    parameters: dict[str, Any] = field(default_factory=dict)
    artifacts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


@dataclass
class Task:
    """A task of the graph that has its turn.

    Attributes:
        spec: The task in its DAG.
        detail: What the job tells of it.
        failed: Names of the tasks that failed in it: its own, or those inside it.
    """

    name: str
    spec: dict[str, Any]
    detail: Message
    outputs: Values = field(default_factory=Values)
    failed: list[str] = field(default_factory=list)

    @property
    def id(self) -> int:
        return self.detail.task_id

    @property
    def state(self) -> int:
        return self.detail.state


class TaskError(Exception):
    """A task that fails, with the sentence that its detail shows."""


class PipelineRun:
    """One run of a pipeline.

    Args:
        job: The resource, which is kept up to date.
        spec: Its pipeline spec, parsed.
        lock: Guards `job`.
        mount: The folder that plays `/gcs`.
        longest_backoff: Seconds that a retry waits at most, whatever its policy says.
    """

    def __init__(
        self,
        job: Message,
        spec: Message,
        processes: Processes,
        logs: Logs,
        metadata: Metadata,
        ids: Ids,
        lock: threading.RLock,
        *,
        mount: Path,
        longest_backoff: float,
    ) -> None:
        self.job, self._lock, self._mount = job, lock, str(mount)
        self._processes, self._logs, self._metadata, self._ids = processes, logs, metadata, ids
        self._longest_backoff = longest_backoff
        self._spec = protos.to_dict(spec)
        self._components = self._spec.get("components", {})
        self._executors = self._spec.get("deploymentSpec", {}).get("executors", {})
        self._cancelled, self.ended = threading.Event(), threading.Event()
        self._running: dict[Process, bool] = {}
        self._some_failed = False
        _, self._project, _, self._location, _, self._id = job.name.split("/")
        self._root = job.runtime_config.gcs_output_directory.rstrip("/")
        self._uid = ids.new()

    def execute(self) -> None:
        """Runs the graph to its end; the job's state and error say how it went."""
        with self._lock:
            self.job.start_time.GetCurrentTime()
        root = self._start(self._id, {}, parent=None)
        try:
            given = protos.to_dict(self.job.runtime_config).get("parameterValues", {})
            component = self._spec["root"]
            inputs = Values(self._with_defaults(given, component, Resolver(self._words(root), {}, self._mount)))
            self._record_inputs(root, inputs, "system.Run")  # where an experiment looks for the parameters
            self._run_dag(root, component, inputs)
            self._end(root, self._verdict(root))
        except Exception as error:  # a fault of the stand-in, or a graph that it can't run: the job says which
            self._fail(root, f"{type(error).__name__}: {error}")
        with self._lock:
            if self._cancelled.is_set():
                self.job.state = PipelineState.PIPELINE_STATE_CANCELLED
                self.job.error.code, self.job.error.message = 1, "The pipeline job was cancelled."
            elif root.state == State.SUCCEEDED:
                self.job.state = PipelineState.PIPELINE_STATE_SUCCEEDED
            else:
                ids = f"(project_id = {self._project}, job_id = {self._uid})"
                self.job.error.CopyFrom(root.detail.error)
                self.job.error.message += f"; Job {ids} is failed due to the above error."
                self.job.state = PipelineState.PIPELINE_STATE_FAILED
            self.job.end_time.GetCurrentTime()
        self.ended.set()

    def cancel(self) -> None:
        """Has the running tasks stopped and no others started, but for exit handlers."""
        self._cancelled.set()
        for process, is_exit in list(self._running.items()):
            if not is_exit:
                threading.Thread(target=process.stop, daemon=True).start()

    # The graph

    def _run_dag(self, parent: Task, component: dict[str, Any], inputs: Values) -> None:
        """Runs the tasks of a DAG, each as soon as those before it have ended, and gathers the DAG's outputs."""
        waiting = dict(component["dag"]["tasks"])
        ended: dict[str, Task] = {}
        running: dict[Future, Task] = {}
        with ThreadPoolExecutor(max_workers=len(waiting)) as pool:
            while waiting or running:
                ready = [name for name, spec in waiting.items() if _upstream(spec) <= ended.keys()]
                if not ready and not running:
                    raise TaskError(f"The tasks {sorted(waiting)} wait for each other.")
                for name in ready:
                    task = self._start(name, waiting.pop(name), parent)
                    running[pool.submit(self._run_task, task, inputs, dict(ended))] = task
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    task = running.pop(future)
                    future.result()
                    ended[task.name] = task
                    parent.failed += task.failed
        parent.outputs = _dag_outputs(component["dag"].get("outputs", {}), ended)

    def _run_task(self, task: Task, scope: Values, ended: Mapping[str, Task]) -> None:
        is_exit = _is_exit(task.spec)
        before = [ended[name] for name in _upstream(task.spec)]
        if not is_exit:
            if self._cancelled.is_set():
                self._end(task, State.CANCELLED)
                return
            stopped = self._some_failed and self.job.runtime_config.failure_policy == FAIL_FAST
            if stopped or any(other.state != State.SUCCEEDED for other in before):
                self._end(task, State.NOT_TRIGGERED)
                return
        try:
            component = self._components[task.spec["componentRef"]["name"]]
            inputs = self._inputs(task, component, scope, ended)
            condition = task.spec.get("triggerPolicy", {}).get("condition")
            if condition and not holds(condition, inputs.parameters):
                self._end(task, State.NOT_TRIGGERED)
                return
            with self._lock:
                task.detail.state = State.RUNNING
                task.detail.start_time.GetCurrentTime()
            if "dag" in component:
                self._run_dag(task, component, inputs)
                self._end(task, self._verdict(task))
            else:
                self._run_executor(task, component, inputs, is_exit)
                self._end(task, State.SUCCEEDED)
        except Exception as error:
            self._some_failed = True
            if self._cancelled.is_set() and not is_exit:
                self._end(task, State.CANCELLED)
            else:
                task.failed = [task.name]
                self._fail(task, str(error) if isinstance(error, TaskError) else f"{type(error).__name__}: {error}")

    def _verdict(self, task: Task) -> int:
        """Returns the state of a DAG whose tasks have ended."""
        if not task.failed:
            return State.CANCELLED if self._cancelled.is_set() else State.SUCCEEDED
        with self._lock:
            names = ", ".join(task.failed)
            task.detail.error.code = 9
            task.detail.error.message = f"The DAG failed because some tasks failed. The failed tasks are: [{names}]."
        return State.FAILED

    # One task

    def _inputs(self, task: Task, component: dict[str, Any], scope: Values, ended: Mapping[str, Task]) -> Values:
        wanted, result = task.spec.get("inputs", {}), Values()
        for name, source in wanted.get("artifacts", {}).items():
            if "taskOutputArtifact" in source:
                at = source["taskOutputArtifact"]
                artifacts = ended[at["producerTask"]].outputs.artifacts.get(at["outputArtifactKey"])
            else:
                artifacts = scope.artifacts.get(source["componentInputArtifact"])
            if artifacts is not None:
                result.artifacts[name] = artifacts
        given = {}
        for name, source in wanted.get("parameters", {}).items():
            if "parameterExpressionSelector" in source:
                raise TaskError(f"The input {name!r} is part of a loop's item, which the stand-in can't run.")
            given |= self._parameter(name, source, scope, ended)
        shown = {"inputs": {"parameterValues": given, "artifacts": _lists(result.artifacts)}}
        result.parameters = self._with_defaults(given, component, Resolver(self._words(task), shown, self._mount))
        return result

    def _parameter(self, name: str, source: dict[str, Any], scope: Values, ended: Mapping[str, Task]) -> dict[str, Any]:
        if "runtimeValue" in source:
            return {name: source["runtimeValue"].get("constant")}
        if "taskFinalStatus" in source:
            return {name: self._final_status(ended[source["taskFinalStatus"]["producerTask"]])}
        if "taskOutputParameter" in source:
            at = source["taskOutputParameter"]
            made = ended[at["producerTask"]].outputs.parameters
            if at["outputParameterKey"] not in made:
                raise TaskError(f"The task {at['producerTask']} did not write its output {at['outputParameterKey']!r}.")
            return {name: made[at["outputParameterKey"]]}
        key = source["componentInputParameter"]
        return {name: scope.parameters[key]} if key in scope.parameters else {}

    def _final_status(self, task: Task) -> dict[str, Any]:
        status = {
            "state": WORDS[task.state],
            "pipelineJobResourceName": self.job.name,
            "pipelineTaskName": task.name,
        }
        if task.detail.error.code:
            status["error"] = {"code": task.detail.error.code, "message": task.detail.error.message}
        return status

    def _with_defaults(self, given: dict[str, Any], component: dict[str, Any], resolver: Resolver) -> dict[str, Any]:
        """Returns the values of a component's inputs, with the defaults of those not given."""
        values = {}
        for name, definition in component.get("inputDefinitions", {}).get("parameters", {}).items():
            value = given.get(name, definition.get("defaultValue"))
            if value is not None:
                values[name] = value
        return {name: resolver.inner(value) for name, value in ({**given, **values}).items()}

    def _run_executor(self, task: Task, component: dict[str, Any], inputs: Values, is_exit: bool) -> None:
        executor = self._executors[component["executorLabel"]]
        executor_input = self._executor_input(task, component, inputs)
        resolver = Resolver(self._words(task), executor_input, self._mount)
        self._record_inputs(task, inputs)
        if "importer" in executor:
            self._import(task, component, executor["importer"], inputs, resolver)
        else:
            self._run_container(task, component, executor["container"], executor_input, resolver, is_exit)
        self._record_outputs(task)

    def _executor_input(self, task: Task, component: dict[str, Any], inputs: Values) -> dict[str, Any]:
        """Returns the executor input that Vertex builds: outputs below the root, the project's number and the job."""
        folder = f"{self._root}/{self._project}/{self._id}/{task.name}_{task.id}"
        definitions = component.get("outputDefinitions", {})
        artifacts = {
            name: [
                {
                    "name": f"{self._parent}/metadataStores/default/artifacts/{self._ids.new()}",
                    "uri": f"{folder}/{name}",
                    "type": definition["artifactType"],
                    "metadata": {},
                }
            ]
            for name, definition in definitions.get("artifacts", {}).items()
        }
        local = local_path(folder, self._mount)
        parameters = {name: {"outputFile": f"{local}/{name}"} for name in definitions.get("parameters", {})}
        return {
            "inputs": {"parameterValues": inputs.parameters, "artifacts": _lists(inputs.artifacts)},
            "outputs": {
                "parameters": parameters,
                "artifacts": _lists(artifacts),
                "outputFile": f"{local}/executor_output.json",
            },
        }

    def _run_container(
        self,
        task: Task,
        component: dict[str, Any],
        container: dict[str, Any],
        executor_input: dict[str, Any],
        resolver: Resolver,
        is_exit: bool,
    ) -> None:
        output_file = Path(executor_input["outputs"]["outputFile"])
        output_file.parent.mkdir(parents=True, exist_ok=True)  # the mount has every folder
        command = resolver.command([*container.get("command", []), *container.get("args", [])])
        env = {item["name"]: item["value"] for item in container.get("env", [])}
        # Google's launchers put these labels on what they start.
        env["VERTEX_AI_PIPELINES_RUN_LABELS"] = json.dumps({"vertex-ai-pipelines-run-billing-id": self._uid})
        tries = int(task.spec.get("retryPolicy", {}).get("maxRetryCount", 0)) + 1
        for left in reversed(range(tries)):
            status, said = self._try(task, command, env, is_exit)
            if status == 0:
                break
            if not left or (self._cancelled.is_set() and not is_exit):
                raise TaskError(
                    f"The replica workerpool0-0 exited with a non-zero status of {status}. "
                    f"Termination reason: Error.\n{said}"
                )
            self._cancelled.wait(self._longest_backoff)
        task.outputs = _container_outputs(component, executor_input)

    def _try(self, task: Task, command: list[str], env: dict[str, str], is_exit: bool) -> tuple[int, str]:
        """Runs a task's process once, in a custom job of its own, as Vertex does."""
        job_id = self._ids.new()
        log, detail = self._logs.open(job_id), task.detail.executor_detail.container_detail
        with self._lock:
            if detail.main_job:
                detail.failed_main_jobs.append(detail.main_job)
            detail.main_job = f"{self._parent}/customJobs/{job_id}"
        started: list[Process] = []

        def note(process: Process) -> None:
            started.append(process)
            self._running[process] = is_exit
            if self._cancelled.is_set() and not is_exit:
                process.stop()

        status = self._processes.run(f"{task.name}-{job_id}", command, env, log, note)
        for process in started:
            self._running.pop(process, None)
        if status == 0 and self._cancelled.is_set() and not is_exit:
            status = 143  # a launcher ends well once it has passed the cancellation on
        return status, log.tail()

    def _import(
        self,
        task: Task,
        component: dict[str, Any],
        importer: dict[str, Any],
        inputs: Values,
        resolver: Resolver,
    ) -> None:
        ((name, definition),) = component["outputDefinitions"]["artifacts"].items()
        uri = inputs.parameters.get("uri") or resolver.text(importer["artifactUri"]["constant"])
        artifact = {
            "name": f"{self._parent}/metadataStores/default/artifacts/{self._ids.new()}",
            "uri": uri,
            "type": definition["artifactType"],
            "metadata": resolver.inner(importer.get("metadata", {})),
        }
        task.outputs = Values({}, {name: [artifact]})

    # What is told of it

    @property
    def _parent(self) -> str:
        return f"projects/{self._project}/locations/{self._location}"

    def _words(self, task: Task) -> dict[str, str]:
        created = MessageToDict(self.job)["createTime"]
        return {
            "pipeline_root": self._root,
            "pipeline_job_name": self._id,
            "pipeline_job_resource_name": self.job.name,
            "pipeline_job_uuid": self._uid,
            "pipeline_job_id": self._uid,
            "pipeline_job_create_time_utc": created,
            "pipeline_job_schedule_time_utc": created,
            "pipeline_task_name": task.name,
            "pipeline_task_uuid": str(task.id),
            "pipeline_google_cloud_location": self._location,
            "pipeline_google_cloud_project_id": self._project,
            "pipeline_service_account": self.job.service_account,
            "pipeline_persistent_resource_id": "",
        }

    def _start(self, name: str, spec: dict[str, Any], parent: Task | None) -> Task:
        detail = protos.new("PipelineTaskDetail", task_name=name, task_id=int(self._ids.new()), state=State.PENDING)
        if parent:
            detail.parent_task_id = parent.id
        detail.create_time.GetCurrentTime()
        with self._lock:
            details = self.job.job_detail.task_details
            details.append(detail)
            return Task(name, spec, details[-1])

    def _fail(self, task: Task, message: str) -> None:
        with self._lock:
            task.detail.error.code, task.detail.error.message = 9, message
        self._end(task, State.FAILED)

    def _end(self, task: Task, state: int) -> None:
        with self._lock:
            task.detail.state = state
            task.detail.end_time.GetCurrentTime()
            if task.detail.execution.name:
                succeeded = state == State.SUCCEEDED
                execution = self._metadata.stores["executions"].get(task.detail.execution.name)
                execution.state = Execution.State.COMPLETE if succeeded else Execution.State.FAILED
                task.detail.execution.CopyFrom(execution)

    def _record_inputs(self, task: Task, inputs: Values, schema: str = "system.ContainerExecution") -> None:
        execution = self._metadata.create(
            "executions",
            self._parent,
            display_name=task.name,
            schema_title=schema,
            schema_version="0.0.1",
            state=Execution.State.RUNNING,
        )
        for name, value in inputs.parameters.items():
            execution.metadata[f"input:{name}"] = value
        context = self.job.job_detail.pipeline_run_context.name
        self._metadata.members[context].add(execution.name)
        with self._lock:
            task.detail.execution.CopyFrom(execution)
            for name, artifacts in inputs.artifacts.items():
                task.detail.inputs[name].artifacts.extend(map(_resource, artifacts))
        for artifact in (item for items in inputs.artifacts.values() for item in items):
            self._metadata.link(execution.name, artifact["name"], Event.Type.INPUT)

    def _record_outputs(self, task: Task) -> None:
        execution = self._metadata.stores["executions"].get(task.detail.execution.name)
        for name, value in task.outputs.parameters.items():
            execution.metadata[f"output:{name}"] = value
        context = self.job.job_detail.pipeline_run_context.name
        with self._lock:
            for name, artifacts in task.outputs.artifacts.items():
                task.detail.outputs[name].artifacts.extend(map(_resource, artifacts))
        for artifact in (item for items in task.outputs.artifacts.values() for item in items):
            resource = _resource(artifact)
            resource.create_time.GetCurrentTime()
            self._metadata.stores["artifacts"].add(resource)
            self._metadata.members[context].add(resource.name)
            self._metadata.link(execution.name, resource.name, Event.Type.OUTPUT)


def _upstream(spec: dict[str, Any]) -> set[str]:
    return set(spec.get("dependentTasks", []))


def _is_exit(spec: dict[str, Any]) -> bool:
    return spec.get("triggerPolicy", {}).get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED"


def _lists(artifacts: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return {name: {"artifacts": items} for name, items in artifacts.items()}


def _dag_outputs(spec: dict[str, Any], ended: Mapping[str, Task]) -> Values:
    """Returns a DAG's outputs: of several producers (`dsl.OneOf`), that which has run."""
    result = Values()
    for name, output in spec.get("artifacts", {}).items():
        for selector in output.get("artifactSelectors", []):
            made = ended[selector["producerSubtask"]].outputs.artifacts
            if selector["outputArtifactKey"] in made:
                result.artifacts[name] = made[selector["outputArtifactKey"]]
    for name, output in spec.get("parameters", {}).items():
        selectors = output.get("valueFromOneof", {}).get("parameterSelectors", [])
        for selector in selectors or [output["valueFromParameter"]]:
            made = ended[selector["producerSubtask"]].outputs.parameters
            if selector["outputParameterKey"] in made:
                result.parameters[name] = made[selector["outputParameterKey"]]
    return result


def _container_outputs(component: dict[str, Any], executor_input: dict[str, Any]) -> Values:
    """Reads what a container left: the executor's output file, and a file for each parameter."""
    outputs = executor_input["outputs"]
    path = Path(outputs["outputFile"])
    said = json.loads(path.read_text()) if path.exists() else {}
    parameters = {name: protos.integral(value) for name, value in said.get("parameterValues", {}).items()}
    for name, definition in component.get("outputDefinitions", {}).get("parameters", {}).items():
        written = Path(outputs["parameters"][name]["outputFile"])
        if name not in parameters and written.exists():
            parameters[name] = _parsed(written.read_text(), definition["parameterType"])
    artifacts = {name: [dict(item) for item in items["artifacts"]] for name, items in outputs["artifacts"].items()}
    for name, items in said.get("artifacts", {}).items():
        for artifact, changed in zip(artifacts[name], items["artifacts"], strict=True):
            artifact.update({key: changed[key] for key in ("uri", "metadata") if key in changed})
    return Values(parameters, artifacts)


def _parsed(text: str, kind: str) -> Any:
    return text if kind == "STRING" else protos.integral(json.loads(text))


def _resource(artifact: dict[str, Any]) -> Message:
    """Returns an artifact of an executor input as a resource of ML Metadata."""
    resource = protos.new(
        "Artifact",
        name=artifact["name"],
        uri=artifact["uri"],
        display_name=artifact["uri"].rpartition("/")[2],
        schema_title=artifact["type"].get("schemaTitle", ""),
        schema_version=artifact["type"].get("schemaVersion", ""),
        state=Artifact.State.LIVE,
    )
    resource.metadata.update(artifact["metadata"])
    return resource
