"""A local run's folder: where things lie in it, and its summary."""

import json
import shutil
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from components.errors import ConfigError
from components.step import RECORD, inventory
from pipelines import images
from pipelines.config import RunConfig, load
from pipelines.images import Images

State = Literal["SUCCEEDED", "FAILED", "REJECTED", "INTERRUPTED"]


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run, `runs/<name>-<UTC time>`."""

    path: Path

    @property
    def config_file(self) -> Path:
        """The run's settings, resolved."""
        return self.path / "config.yaml"

    @property
    def images_file(self) -> Path:
        """The images of a run in containers; not there for a run in processes."""
        return self.path / "images.json"

    @property
    def summary_file(self) -> Path:
        """How the run went."""
        return self.path / "summary.json"

    @property
    def lock_file(self) -> Path:
        """Held by the process that runs in this folder."""
        return self.path / "lock"

    @property
    def steps(self) -> Path:
        """KFP's pipeline root: outputs and records of the steps."""
        return self.path / "steps"

    @property
    def cache(self) -> Path:
        """KFP's cache, from which a resumed run takes the steps that are done."""
        return self.path / "cache"

    @property
    def checkpoints(self) -> Path:
        """Training's checkpoints, from which a resumed run goes on."""
        return self.path / "checkpoints"

    def log(self, step: str) -> Path:
        """The whole log of a step."""
        return self.path / "logs" / f"{step}.log"

    def config(self) -> RunConfig:
        """Returns the run's settings.

        Raises:
            ConfigError: if the folder is no run's.
        """
        if not self.config_file.exists():
            raise ConfigError(f"{self.path} has no config.yaml, so it is no run to resume; give a folder below runs/.")
        return load(self.config_file)

    def images(self) -> Images | None:
        """Returns the images of a run in containers, None for a run in processes."""
        return images.load(self.images_file, allow_tags=True) if self.images_file.exists() else None

    def records(self) -> dict[str, dict[str, Any]]:
        """Returns each step's newest record, by step: see `components.step`."""
        found = [record for path in self.steps.glob(f"*/*/{RECORD}") if (record := _read_record(path))]
        return {record["step"]: record for record in sorted(found, key=lambda record: record["started"])}

    def forget_broken_steps(self) -> None:
        """Empties the cache if the outputs of a finished step are not as it left them: every step then runs again."""
        for record in self.records().values():
            finished = record["state"] == "SUCCEEDED"
            if finished and any(inventory(uri) != found for uri, found in record["files"].items()):
                self.forget_steps()

    def forget_steps(self) -> None:
        """Empties the cache."""
        shutil.rmtree(self.cache, ignore_errors=True)


def _read_record(path: Path) -> dict[str, Any] | None:
    """Returns a step's record, or None where the file is damaged: the step then counts as not run."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return record if {"step", "started", "state", "outputs"} <= record.keys() else None
    except (ValueError, OSError, AttributeError):
        return None


def create(runs: Path, config: RunConfig, chosen: Images | None = None) -> RunFolder:
    """Makes the folder of a new run and points `latest` at it.

    Args:
        runs: The folder of all runs.
        config: The run's settings.
        chosen: The images of a run in containers; None for a run in processes.

    Raises:
        ConfigError: if it can't be made there.
    """
    if set(str(runs.absolute())) & set("[]*?"):
        raise ConfigError(
            f"--runs {runs} has one of [ ] * ? in its path, which TensorFlow takes for a pattern; use another."
        )
    if chosen and ":" in str(runs.absolute()):
        raise ConfigError(f"--runs {runs} has a : in its path, which Docker takes for an end; use another.")
    try:
        runs.mkdir(parents=True, exist_ok=True)
        return _create(runs, config, chosen)
    except OSError as error:
        raise ConfigError(f"No run can be made in --runs {runs}: {error.strerror} ({error.filename}).") from error


def _create(runs: Path, config: RunConfig, chosen: Images | None) -> RunFolder:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = runs / f"{config.name}-{stamp}"
    count = 1
    while True:  # two runs may start in the same second
        try:
            path.mkdir()
            break
        except FileExistsError:
            count += 1
            path = runs / f"{config.name}-{stamp}-{count}"
    folder = RunFolder(path)
    (path / "logs").mkdir()
    settings = yaml.safe_dump(config.model_dump(), sort_keys=False, allow_unicode=True)
    folder.config_file.write_text(settings, encoding="utf-8")
    if chosen:
        folder.images_file.write_text(json.dumps(asdict(chosen), indent=2) + "\n", encoding="utf-8")
    point_latest(folder)
    return folder


def point_latest(folder: RunFolder) -> None:
    """Makes the link `latest`, beside the run's folder, point to it."""
    link = folder.path.parent / "latest"
    new = link.with_name(".latest.new")
    new.unlink(missing_ok=True)
    new.symlink_to(folder.path.name)
    new.replace(link)


@dataclass(frozen=True)
class StepSummary:
    """How one step went: `SUCCEEDED`, `CACHED`, `FAILED`, `INTERRUPTED` or `SKIPPED`, and its seconds."""

    state: str
    seconds: float


@dataclass(frozen=True)
class Summary:
    """What `summary.json` says of a run.

    Attributes:
        state: How the run ended. `REJECTED`: the model is below `evaluation.min_accuracy` and was not exported.
        seconds: Wall time of the run.
        steps: State and seconds of each step, by name; seconds include the step's start-up.
        metrics: Test accuracy and loss, where the model was evaluated.
        artifacts: Paths of `dataset`, `model`, `report` and `export`, where they were made.
        failing_step: The step that failed, or None.
        error: Its error, or None.
        fault: `user` if a setting, the data or the machine is to blame, `ours` otherwise; None without an error.
    """

    state: State
    seconds: float
    steps: dict[str, StepSummary]
    metrics: dict[str, float] = field(default_factory=dict)
    artifacts: dict[str, str] = field(default_factory=dict)
    failing_step: str | None = None
    error: str | None = None
    fault: str | None = None

    def save(self, path: Path) -> None:
        """Writes the summary as JSON."""
        path.write_text(json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
