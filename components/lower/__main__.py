"""Lowers for another process: `python -m components.lower`, a job a line. See components/worker.py."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from components import worker


def do(job: worker.Job) -> Mapping[str, Any]:
    """Lowers one step into the job's folder. The job has all settings of the run: train's are taken from them."""
    from components.dataset.description import Description
    from components.lower.lower import lower
    from components.train.options import TrainOptions

    options = worker.options_of(TrainOptions, job["settings"])
    return asdict(lower(options, Description.from_json(job["description"]), job["program"]))


if __name__ == "__main__":
    import tensorflow  # noqa: F401 - while the first job is still being made

    worker.serve(do)
