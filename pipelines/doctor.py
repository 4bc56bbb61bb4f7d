"""`tpu-pipelines doctor`: the installed versions against the lock, the known traps, the devices, the device check."""

import importlib.metadata
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from components.errors import ConfigError, TpuPipelinesError
from components.preflight.compiler import check_installed
from components.worker import Worker
from pipelines import machines
from pipelines.local.run import device_check
from pipelines.preflight.request import slice_of

Versions = Mapping[str, Version]

# The packages whose versions move together: everything else may differ from the lock without harm.
COUPLED = (
    "tensorflow",
    "tensorflow-tpu",
    "libtpu",
    "jax",
    "jaxlib",
    "tf-keras",
    "tensorflow-text",
    "transformers",
    "kfp",
    "google-cloud-pipeline-components",
    "protobuf",
    "numpy",
)


@dataclass(frozen=True)
class Trap:
    """A combination of versions that is known to fail, though pip or uv installs it.

    Attributes:
        applies: Says whether the installed versions are such a combination.
        sentence: What happens, and what to do.
    """

    applies: Callable[[Versions], bool]
    sentence: str


def _at_least(name: str, version: str) -> Callable[[Versions], bool]:
    return lambda versions: name in versions and versions[name] >= Version(version)


def _below(name: str, version: str) -> Callable[[Versions], bool]:
    return lambda versions: name in versions and versions[name] < Version(version)


def _minor(version: Version) -> tuple[int, int]:
    return version.major, version.minor


TRAPS = (
    Trap(
        lambda versions: _at_least("transformers", "4.54")(versions) and _below("transformers", "5")(versions),
        "transformers 4.54 and later can't load PyTorch-format safetensors into TensorFlow classes; install 4.53.3.",
    ),
    Trap(_at_least("transformers", "5"), "transformers 5 has no TensorFlow classes; install 4.53.3."),
    Trap(
        lambda versions: "tensorflow" in versions and "tensorflow-tpu" in versions,
        "tensorflow and tensorflow-tpu are both installed, so one has overwritten files of the other; reinstall one.",
    ),
    Trap(
        lambda versions: "tensorflow-cpu" in versions and "tensorflow-text" in versions,
        "tensorflow-text fails to load beside tensorflow-cpu (undefined symbol); install tensorflow in its place.",
    ),
    Trap(
        lambda versions: _at_least("kfp", "2.14.1")(versions) and _below("protobuf", "6.31")(versions),
        "kfp from 2.14.1 on needs protobuf 6.31 or later; plain pip takes an older one for TensorFlow. Use uv sync.",
    ),
    Trap(_below("kfp", "2.16"), "kfp before 2.16 can't run conditions locally; install 2.17.3."),
    Trap(
        lambda versions: any(
            name in versions and build in versions and _minor(versions[name]) != _minor(versions[build])
            for name in ("tf-keras", "tensorflow-text")
            for build in ("tensorflow", "tensorflow-tpu")
        ),
        "tf-keras and tensorflow-text must have TensorFlow's minor version; install all three from the lock.",
    ),
    Trap(
        _at_least("tensorflow-tpu", "2.20"),
        "tensorflow-tpu 2.20.0 crashes as it starts a TPU, with every libtpu tried; install 2.19.1.",
    ),
    Trap(
        lambda versions: _at_least("jaxlib", "0.7")(versions) and _below("libtpu", "0.0.11")(versions),
        "jaxlib 0.7 and later writes programs that libtpu 0.0.10 can't read, so preflight fails; install jaxlib 0.6.0.",
    ),
    Trap(
        _at_least("google-cloud-aiplatform", "2"),
        "google-cloud-pipeline-components needs google-cloud-aiplatform below 2; install the lock's.",
    ),
)


def installed() -> dict[str, Version]:
    """Returns the versions of the installed packages that matter here."""
    found = {}
    for name in (*COUPLED, "tensorflow-cpu", "google-cloud-aiplatform"):
        try:
            found[name] = Version(importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def expected(versions: Versions) -> dict[str, str]:
    """Returns the versions to expect, by package: the lock's in a checkout, else what our own package requires.

    Args:
        versions: What is installed. Of what only some environments have, nothing is expected where it is missing.
    """
    optional = {
        "libtpu",
        "jax",
        "jaxlib",
        "tensorflow" if "tensorflow-tpu" in versions else "tensorflow-tpu",
    } - versions.keys()
    return {name: specifier for name, specifier in _required().items() if name not in optional}


def _show_compiler(versions: Versions, console: Console) -> bool:
    """Prints which TPU compiler preflight has here, after a try of it for every slice; says whether it is well."""
    try:
        check_installed()
    except ConfigError as error:
        console.print(f"No preflight here: {escape(str(error))}", soft_wrap=True)
        return True
    slices = [slice_of(machine).to_json() for machine in machines.TPU_MACHINES.values() if machine.compiler_topology]
    try:
        with Worker("components.preflight") as compiler:
            known = compiler.do({"known": slices})["known"]
    except TpuPipelinesError as error:
        console.print(f"[red]✘[/] TPU compiler: {escape(str(error))}", soft_wrap=True)
        return False
    console.print(f"TPU compiler: libtpu {versions['libtpu']} (jax {versions['jax']}) compiles for {', '.join(known)}")
    if missing := [slice_["name"] for slice_ in slices if slice_["name"] not in known]:
        console.print(f"[red]✘[/] TPU compiler: it does not compile for {', '.join(missing)}")
    return not missing


def _required() -> dict[str, str]:
    lock = Path(__file__).parent.parent / "uv.lock"
    if lock.exists():
        packages = tomllib.loads(lock.read_text(encoding="utf-8"))["package"]
        return {package["name"]: f"=={package['version']}" for package in packages if package["name"] in COUPLED}
    requirements = [Requirement(text) for text in importlib.metadata.requires("tpu-pipelines") or ()]
    return {item.name: str(item.specifier) for item in requirements if item.name in COUPLED and not item.marker}


def examine(console: Console, replicas: int) -> bool:
    """Prints versions, traps and the device check; says whether everything is well.

    Args:
        console: Where to print.
        replicas: CPU replicas of the device check.
    """
    versions, well = installed(), True
    table = Table(box=box.SIMPLE_HEAD)
    for title in ("package", "installed", "expected", ""):
        table.add_column(title)
    for name, specifier in expected(versions).items():
        version = versions.get(name)
        good = version is not None and version in Requirement(f"{name}{specifier}").specifier
        well &= good
        sign = "[green]✔[/]" if good else "[red]✘[/]"
        table.add_row(name, str(version or "not installed"), specifier, sign)
    console.print(table)
    for trap in TRAPS:
        if trap.applies(versions):
            well = False
            console.print(f"[red]✘[/] {trap.sentence}")
    well &= _show_compiler(versions, console)
    console.print("Device check: a matrix product on one device and on every replica …")
    result = device_check("cpu", replicas)
    for line in result.stdout.splitlines():
        console.print(f"  {escape(line)}", soft_wrap=True)
    if result.returncode:
        well = False
        console.print(f"[red]✘[/] {escape((result.stderr.strip() or 'it failed').splitlines()[-1])}", soft_wrap=True)
    console.print(
        "[green]✔ all is well[/]" if well else "[red]✘ not all is well: run `make clean run`, or see above[/]"
    )
    return well
