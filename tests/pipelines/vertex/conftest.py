"""Google's services on this machine, for the command line and the real clients in it."""

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from google.cloud.resourcemanager_v3.services.projects.client import ProjectsClientMeta

from tests import command_line
from tests.standins.edge import PROJECT, Edge, edge
from tests.standins.storage import Storage, storage
from tests.standins.vertex import Vertex, vertex
from tests.standins.vertex.processes import CHILD_PATH

# What the SDK asks of the Resource Manager, it asks by gRPC; nothing else of the program is touched.
ONLY_ACCOUNTS = {"VERTEX_STANDIN_PATCHES": "resourcemanager"}
ProjectsClientMeta._transport_registry.move_to_end("rest", last=False)
PROGRAM = Path(sys.executable).with_name("tpu-pipelines")
NUMBER = "123456789012"
ROOT = Path(__file__).parents[3]


@dataclass
class Cloud:
    """The services, and the command line with its way to them."""

    service: Vertex
    storage: Storage
    network: Edge
    folder: Path

    def run(self, *words):
        """Runs `tpu-pipelines` to its end."""
        return subprocess.run(
            [PROGRAM, *map(str, words)],
            env={
                **os.environ,
                **self.network.environment,
                "COLUMNS": "200",
                "PYTHONPATH": str(CHILD_PATH),
                **ONLY_ACCOUNTS,
            },
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

    def call(self, *words):
        """Does what `run` does in this process."""
        return command_line.call(*words, environment=self.network.environment | {"COLUMNS": "200"})

    def submit(self, *overrides, command="submit", options=(), how=None):
        """Submits a small run, on a v5e-4 that CPU replicas play."""
        settings = [
            *(f"vertex.project={PROJECT}", "vertex.pipeline_root=gs://bucket/runs"),
            *("machine.name=v5e-4", "data.sample_fraction=0.2", "evaluation.min_accuracy=0.1", "training.epochs=1"),
            *overrides,
        ]
        words = [word for setting in settings for word in ("--set", setting)]
        return (how or self.call)(
            command, "configs/mnist_sample.yaml", "--images", "tests/golden/images.json", *words, *options
        )

    def records(self):
        """Returns the steps' records in the bucket, by step."""
        names = [name for name in self.storage.names("bucket", "runs/") if name.endswith("/step.json")]
        records = [json.loads(self.storage.read("bucket", name)) for name in names]
        return {record["step"]: record for record in records}


@contextlib.contextmanager
def a_cloud(folder, faults=None, **service):
    """Starts the services; `faults` and `service` are the options of `edge` and `vertex`."""
    with storage() as store, vertex(folder / "vertex", project=PROJECT, project_number=NUMBER, **service) as served:
        store.objects.buckets["bucket"] |= {
            "location": "US-CENTRAL1",
            "locationType": "region",
            "projectNumber": NUMBER,
        }
        with edge(store.routes | served.routes, folder / "edge", faults) as network:
            served.process_environment.update(network.environment)
            yield Cloud(served, store, network, folder)


@pytest.fixture
def cloud_with(tmp_path):
    """Makes a `Cloud`: `cloud_with(stockout=...)`."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(a_cloud(tmp_path, **options))
