"""Writes the software bill of materials of an image, CycloneDX 1.5 JSON: its Python and Debian packages.

.venv/bin/python containers/sbom.py tpu-pipelines/cpu:unreleased -o build/sbom/cpu.cdx.json

What is listed is read inside the image, so it is what is there, whatever the lock says.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import docker
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot5
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from docker.errors import DockerException
from packageurl import PackageURL

from components import files

# Run by the image's own Python: every distribution, and every installed paragraph of Debian's package database.
LIST = """
import importlib.metadata, json, pathlib, platform
distributions = [(each.metadata["Name"], each.version) for each in importlib.metadata.distributions()]
python = sorted({(name.lower().replace("_", "-"), version) for name, version in distributions})
status = pathlib.Path("/var/lib/dpkg/status").read_text(encoding="utf-8")
paragraphs = [dict(line.split(": ", 1) for line in text.splitlines() if ": " in line and line[0] != " ")
              for text in status.split("\\n\\n") if text]
installed = [each for each in paragraphs if each["Status"].endswith(" installed")]
debian = [(each["Package"], each["Version"], each["Architecture"]) for each in installed]
system, interpreter = platform.freedesktop_os_release(), platform.python_version()
print(json.dumps({"python": python, "debian": debian, "system": system, "interpreter": interpreter}))
"""


def contents(image: str) -> dict[str, Any]:
    """Returns an image's `python` (name, version) and `debian` (name, version, architecture) packages.

    And what they are for: `system`, its os-release file, and `interpreter`, the version of Python.
    """
    container = docker.from_env().containers.create(image, ["-c", LIST], entrypoint="python", network_mode="none")
    try:
        container.start()
        if status := container.wait()["StatusCode"]:
            raise DockerException(f"its Python ended with status {status}")
        return json.loads(container.logs(stderr=False))
    finally:
        container.remove(force=True)


def bill(image: str, found: dict[str, Any]) -> str:
    """Returns the bill as JSON, checked against CycloneDX's schema.

    Raises:
        ValueError: if it does not fit the schema.
    """
    bom = Bom()
    bom.metadata.component = root = Component(type=ComponentType.CONTAINER, name=image, bom_ref=image)
    system = found["system"]
    distro = f"{system['ID']}-{system['VERSION_ID']}"
    packages = [
        PackageURL("generic", name="python", version=found["interpreter"]),
        *(PackageURL("pypi", name=name, version=version) for name, version in found["python"]),
        *(
            PackageURL("deb", system["ID"], name, version, {"arch": architecture, "distro": distro})
            for name, version, architecture in found["debian"]
        ),
    ]
    for package in packages:
        bom.components.add(Component(name=package.name, version=package.version, purl=package, bom_ref=str(package)))
    bom.register_dependency(root, bom.components)
    text = JsonV1Dot5(bom).output_as_string(indent=2)
    if fault := JsonStrictValidator(SchemaVersion.V1_5).validate_str(text):
        raise ValueError(f"The bill of {image} does not fit CycloneDX's schema: {fault}")
    return text


def main() -> None:
    """Writes the bill, whole or not at all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image")
    parser.add_argument("-o", "--output", type=Path, required=True)
    words = parser.parse_args()
    try:
        text = bill(words.image, contents(words.image))
    except DockerException as error:
        sys.exit(f"The packages of {words.image} can't be listed ({error}); build it: containers/build.sh.")
    files.write_bytes(str(words.output), text.encode("utf-8"))
    print(words.output)


if __name__ == "__main__":
    main()
