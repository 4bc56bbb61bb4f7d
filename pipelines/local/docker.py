"""Runs a local run's steps in the images, through KFP's DockerRunner: `tpu-pipelines run --runner docker`."""

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from components.errors import ConfigError, DeviceError, first_line
from components.step import LOG_FORMAT_VARIABLE
from pipelines.config import RunConfig
from pipelines.images import Images
from pipelines.local.folder import RunFolder

if TYPE_CHECKING:
    import docker
    from kfp import local

# Says of a container which run's it is, so that it ends with the run.
LABEL = "tpu-pipelines.run"
# Folders that the images have themselves, and need.
_THE_IMAGES_OWN = {
    f"/{name}" for name in ("", "bin", "dev", "etc", "lib", "opt", "opt/venv", "proc", "tmp", "usr", "var")
}


def check(config: RunConfig, images: Images) -> None:
    """Refuses a run whose steps can't work in containers here, before its data is prepared; pulls images not yet here.

    Raises:
        ConfigError: if its machine is no CPU, the package `docker` is missing, or an image or a path can't be had.
        DeviceError: if no Docker engine answers.
    """
    machine = config.machine
    if machine.row.device != "cpu":
        raise ConfigError(
            f"machine.name is {machine.name}, but containers on this machine train on its CPU; add --set "
            "machine.name=cpu-1 (cpu-8 for eight replicas), or leave --runner docker out."
        )
    _seen(config)
    with contextlib.closing(_client()) as client:
        for image in (images.cpu, images.tpu):
            _have(client, image)


def runner(folder: RunFolder, config: RunConfig) -> "local.DockerRunner":
    """Returns KFP's runner for the steps of a run.

    The steps run as the user who started the run, see the run's folder and the local files that the settings name, at
    their own paths, and nothing else of this machine.
    """
    from docker.types import Mount
    from kfp import local

    folder.steps.mkdir(exist_ok=True)  # the engine would make it, as root
    seen = {str(folder.path): False, **_seen(config)}
    return local.DockerRunner(
        user=f"{os.getuid()}:{os.getgid()}",
        group_add=[str(group) for group in os.getgroups()],
        working_dir=str(Path.cwd()),  # what a relative path in the settings is relative to
        mounts=[Mount(path, path, type="bind", read_only=read_only) for path, read_only in seen.items()],
        environment={
            "HOME": "/tmp",  # noqa: S108 - inside the container, where this user has no home
            "TPU_SKIP_MDS_QUERY": "1",  # `check` has seen to it that no TPU is meant
            LOG_FORMAT_VARIABLE: os.environ.get(LOG_FORMAT_VARIABLE, ""),
        },
        labels={LABEL: _name(folder)},
    )


def end(folder: RunFolder) -> None:
    """Kills the containers of a run, which don't end with the process that has started them.

    Raises:
        DeviceError: if no Docker engine answers.
    """
    from docker.errors import APIError

    with contextlib.closing(_client()) as client:
        for container in client.containers.list(filters={"label": f"{LABEL}={_name(folder)}"}):
            with contextlib.suppress(APIError):  # it has just ended by itself
                container.kill()


def _name(folder: RunFolder) -> str:
    return str(folder.path.resolve())


def _client() -> "docker.DockerClient":
    try:
        import docker
    except ImportError as error:
        raise ConfigError(
            "--runner docker needs the Python package docker; run make setup, or install tpu-pipelines[docker]."
        ) from error
    try:
        client = docker.from_env()
        client.ping()
    except (docker.errors.DockerException, ValueError) as error:  # the second for a port that is none
        raise DeviceError(
            f"No Docker engine answers ({first_line(error)}); start one, see that you may use it (docker info), or "
            "leave --runner docker out."
        ) from error
    return client


def _have(client: "docker.DockerClient", image: str) -> None:
    """Makes sure that an image is here, by the name that KFP will look for, which else pulls what has it."""
    from docker.errors import DockerException, ImageNotFound

    try:
        try:
            found = client.images.get(image)
        except ImageNotFound:
            found = client.images.pull(image)
    except DockerException as error:
        raise ConfigError(
            f"The image {image} is not here and can't be pulled ({first_line(error)}); build it by "
            "containers/build.sh, or name another in --images."
        ) from error
    names = found.tags + found.attrs["RepoDigests"]
    if (image if ":" in image else f"{image}:latest") not in names:
        raise ConfigError(
            f"The image {image} is here by the names {', '.join(names)}; write one of these into --images."
        )


def _seen(config: RunConfig) -> dict[str, bool]:
    """Returns the local paths that the settings name, and of each whether the steps may only read it.

    Folders to write to are made. Links in a folder that is read are followed: where they lead is seen too.
    """
    read = [_before_pattern(config.data.source), config.model.pretrained]
    write = [config.data.tfds_data_dir, config.training.checkpoint_dir]
    seen: dict[str, bool] = {}
    try:
        for name in read:
            path = Path(name).absolute()
            if name and path.exists():
                links = (child for child in path.iterdir() if child.is_symlink()) if path.is_dir() else ()
                seen |= dict.fromkeys((str(path), *(str(link.resolve()) for link in links if link.exists())), True)
        for name in write:
            if name and "://" not in name:
                Path(name).mkdir(parents=True, exist_ok=True)
                seen[str(Path(name).absolute())] = False
    except OSError as error:
        raise ConfigError(f"{error.filename} can't be given to the steps: {error.strerror}.") from error
    if taken := sorted(seen.keys() & _THE_IMAGES_OWN):
        raise ConfigError(
            f"{taken[0]} can't be given to the steps, whose images have their own; use a folder below it."
        )
    return seen


def _before_pattern(source: str) -> str:
    """Returns the folder below which the files of a pattern lie; a path without a pattern as it is."""
    parts = Path(source).parts
    plain = next((index for index, part in enumerate(parts) if set(part) & set("*?[")), None)
    return source if plain is None else str(Path(*parts[:plain]))
