"""Makes reports: from the cache, else by two workers, one with TensorFlow and one with the TPU's compiler."""

import contextlib
import tempfile
from types import TracebackType
from typing import Any, Self

from components.errors import ConfigError, ProgramError
from components.preflight.compiler import check_installed
from components.preflight.rows import REFUSED
from components.preflight.slices import Slice
from components.worker import Worker
from pipelines.config import RunConfig
from pipelines.machines import Machine
from pipelines.preflight import request
from pipelines.preflight.cache import Cache, Report, key
from pipelines.preflight.progress import Progress


class Preflight:
    """Answers what a run's step is on a machine. The workers start with the first question that the cache can't answer.

    Args:
        cache: The reports there are.
        progress: Told what is going on.
        dataset: A prepared data set, whose examples are described instead of those of the run's source.
        examples: Examples of the training split, instead of what the source says.

    Example:
        with Preflight(Cache(), Progress(console)) as preflight:
            report = preflight.report(config, machine)
    """

    def __init__(self, cache: Cache, progress: Progress, *, dataset: str = "", examples: int | None = None) -> None:
        self._cache, self._progress, self._dataset, self._examples = cache, progress, dataset, examples
        self._stack = contextlib.ExitStack()
        self._workers: tuple[Worker, Worker] | None = None
        self._description: dict[str, Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def report(self, config: RunConfig, machine: Machine) -> Report:
        """Returns the report of a run's step on a machine; a step that no TPU runs has one too.

        Raises:
            TpuPipelinesError: if the settings, the data or the model are at fault, before a step can be made of them.
        """
        if reason := request.uneven(config, machine):
            raise ConfigError(reason)
        slice_ = request.slice_of(machine, config.vertex)
        known = key(config, slice_, self._dataset, self._examples)
        if (report := self._cache.get(known)) is None:
            report = self._make(config, machine, slice_)
            if report["verdict"] == REFUSED or report["train_examples"] is not None:
                self._cache.put(known, report)  # else the examples may be known the next time
        return report

    def describe(self, config: RunConfig, machine: Machine) -> dict[str, Any]:
        """Returns what the run's examples are: see `components.dataset.description`. It is asked for once."""
        if self._description is None:
            known = key(config, None, self._dataset)
            self._description = self._cache.get(known)
            if self._description is None:
                self._description = self._look(config, machine)
                if self._description["train_examples"] is not None:  # else it may be known the next time
                    self._cache.put(known, self._description)
        if self._examples is not None:
            self._description |= {"train_examples": self._examples, "exact": True}
        return self._description

    def _look(self, config: RunConfig, machine: Machine) -> dict[str, Any]:
        job = request.settings(config, machine) | {"dataset": self._dataset}
        stage = self._progress.stage(f"looking at the examples of {self._dataset or config.data.source}")
        with stage, Worker("components.prepare.describe") as worker:
            return worker.do(job)

    def _make(self, config: RunConfig, machine: Machine, slice_: Slice) -> Report:
        lower, compiler = self._started()
        description = self.describe(config, machine)
        batch = config.training.global_batch_size
        with tempfile.TemporaryDirectory(prefix="preflight-") as folder:
            try:
                with self._progress.stage(f"tracing the step of {machine.replicas} replicas, {batch} examples"):
                    job = {"settings": request.settings(config, machine), "description": description, "program": folder}
                    lower.do(job)
                with self._progress.stage(f"compiling for {machine.name}, {batch} examples a step"):
                    return compiler.do({"program": folder, "slice": slice_.to_json()})
            except ProgramError as error:
                return {
                    "machine": machine.name,
                    "global_batch_size": batch,
                    "verdict": REFUSED,
                    "sentence": str(error),
                }

    def _started(self) -> tuple[Worker, Worker]:
        if self._workers is None:
            check_installed()
            # Both at once: what they import takes seconds.
            lower, compiler = Worker("components.lower"), Worker("components.preflight")
            self._workers = self._stack.enter_context(lower), self._stack.enter_context(compiler)
        return self._workers
