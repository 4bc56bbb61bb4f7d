"""The process in which KFP runs a local pipeline: `python -m pipelines.local.driver RUN_FOLDER`.

It is a process of its own because KFP takes over the root logger and `print`, and so that the whole run, steps
included, is one process group that can be ended at once.
"""

import logging
import sys
from pathlib import Path

from pipelines.local.folder import RunFolder


def main(path: str) -> None:
    """Runs the pipeline of a run's folder; everything that the steps print goes to standard output."""
    from kfp import local

    from pipelines.local import docker as containers
    from pipelines.local.platform import Containers, ThisMachine
    from pipelines.training import training_pipeline

    logging.basicConfig(stream=sys.stdout, level=logging.INFO)  # where KFP says that a step comes from its cache
    folder = RunFolder(Path(path).resolve())
    config, images = folder.config(), folder.images()
    local.init(
        containers.runner(folder, config) if images else local.SubprocessRunner(use_venv=False),
        pipeline_root=str(folder.steps),
        raise_on_error=False,
        enable_caching=True,
        cache_root=str(folder.cache),
    )
    checkpoint_dir = config.training.checkpoint_dir or str(folder.checkpoints)
    training_pipeline(config, Containers(images) if images else ThisMachine())(checkpoint_dir=checkpoint_dir)


if __name__ == "__main__":
    main(sys.argv[1])
