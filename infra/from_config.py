"""Gives Terraform the project, regions and buckets of a run: infra/config.auto.tfvars.json, from its `vertex:` section.

.venv/bin/python infra/from_config.py configs/mine.yaml            (writes the file)
.venv/bin/python infra/from_config.py configs/mine.yaml --check    (refuses a file that is another run's)
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from components.errors import ConfigError
from pipelines.config import Vertex, load

VARIABLES = Path(__file__).with_name("config.auto.tfvars.json")


def variables(vertex: Vertex) -> dict[str, Any]:
    """Returns Terraform's variables that a run's settings decide: `project`, `regions`, `bucket_prefix`, `name`.

    The last is that of the accounts, and left to Terraform where the settings have none.

    Raises:
        ConfigError: if they name no project, or buckets or accounts that Terraform does not make.
    """
    if not vertex.project:
        raise ConfigError("vertex.project is empty; name the Google Cloud project that Terraform is to fill.")
    bucket = re.fullmatch(r"gs://(?P<prefix>[^/{]+)-\{region\}(/.*)?", vertex.pipeline_root)
    if not bucket:
        raise ConfigError(
            f"vertex.pipeline_root is {vertex.pipeline_root!r}, expected gs://NAME-{{region}}/runs: a bucket is made "
            "in each of vertex.regions, with its region at the end of its name."
        )
    name = _name_of_accounts(vertex)
    found = {"project": vertex.project, "regions": vertex.regions, "bucket_prefix": bucket["prefix"]}
    return found | ({"name": name} if name else {})


def _name_of_accounts(vertex: Vertex) -> str:
    """Returns what stands before `-pipeline` and `-trainer` in the accounts; empty if there are none."""
    place = f"@{vertex.project}.iam.gserviceaccount.com"
    accounts = ((vertex.service_account, "pipeline"), (vertex.trainer_service_account, "trainer"))
    ends = [(account, f"-{role}{place}") for account, role in accounts if account]
    names = {account.removesuffix(end) for account, end in ends}
    if len(names) > 1 or not all(account.endswith(end) for account, end in ends):
        raise ConfigError(
            f"vertex.service_account is {vertex.service_account!r} and vertex.trainer_service_account "
            f"{vertex.trainer_service_account!r}, expected NAME-pipeline{place} and NAME-trainer{place}, as Terraform "
            f"makes them in vertex.project {vertex.project!r} (tpu-pipelines is the usual NAME); change them."
        )
    return next(iter(names), "")


def write(config: Path) -> None:
    """Writes the file for a run's settings.

    Raises:
        ConfigError: if Terraform can't make what they need.
    """
    VARIABLES.write_text(_text(config), encoding="utf-8")


def check(config: Path) -> None:
    """Makes sure that the file is that of a run's settings, and writes it where there is none, as in a fresh clone.

    Raises:
        ConfigError: if it is another's, or Terraform can't make what the settings need.
    """
    if not VARIABLES.exists():
        write(config)
    held, wanted = VARIABLES.read_text(encoding="utf-8"), _text(config)
    if held != wanted:
        raise ConfigError(
            f"{VARIABLES} is not what {config} gives: it has {' '.join(held.split())}, expected "
            f"{' '.join(wanted.split())}; give the file whose infrastructure this is, or, if the settings have changed "
            f"since, first apply that: make infra CONFIG={config}."
        )


def _text(config: Path) -> str:
    vertex = load(config).vertex
    try:
        return json.dumps(variables(vertex), indent=2) + "\n"
    except ConfigError as error:
        raise ConfigError(f"{config}: {error}") from error


def main(arguments: list[str]) -> None:
    """Writes or checks the file."""
    parser = argparse.ArgumentParser(description="Gives Terraform the project, regions and buckets of a run.")
    parser.add_argument("config", type=Path, help="a run's YAML file")
    parser.add_argument("--check", action="store_true", help="refuse a file that is another run's")
    given = parser.parse_args(arguments)
    try:
        (check if given.check else write)(given.config)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    found = json.loads(VARIABLES.read_text(encoding="utf-8"))
    buckets = ", ".join(f"{found['bucket_prefix']}-{region}" for region in found["regions"])
    print(f"project {found['project']}, buckets {buckets}: {VARIABLES}")


if __name__ == "__main__":
    main(sys.argv[1:])
