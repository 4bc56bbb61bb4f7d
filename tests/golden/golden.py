"""The golden pipelines: what the configs for a TPU compile to, and the machine that training asks for.

`make golden` writes them, `make verify-golden` (and a test) compares. The images are made up.
"""

import json
import sys
from pathlib import Path

import yaml

from pipelines import images
from pipelines.config import load
from pipelines.vertex.compile import compile_pipeline

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
VERTEX = [
    "vertex.project=golden-project",
    "vertex.pipeline_root=gs://golden-bucket/runs",
    "vertex.service_account=trainer@golden-project.iam.gserviceaccount.com",
]
CONFIGS = ("mnist", "bert_large")


def golden_files() -> dict[Path, str]:
    """Returns the golden files, as the code would write them."""
    chosen = images.load(HERE / "images.json")
    written = {}
    for name in CONFIGS:
        text = compile_pipeline(load(ROOT / "configs" / f"{name}.yaml", VERTEX), chosen)
        written[HERE / f"{name}.yaml"] = text
        train = yaml.safe_load(text)["components"]["comp-train"]["inputDefinitions"]["parameters"]
        pools = json.dumps(train["worker_pool_specs"]["defaultValue"], indent=2)
        written[HERE / f"{name}.worker_pool_specs.json"] = pools + "\n"
    return written


def differing() -> list[Path]:
    """Returns the golden files that the code would write otherwise."""
    return [
        path for path, text in golden_files().items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


if __name__ == "__main__":
    if "--verify" in sys.argv:
        different = differing()
        for path in different:
            print(f"{path.relative_to(ROOT)} differs from what the code compiles; `make golden`, and review the diff")
        if not different:
            print(f"{len(golden_files())} golden files are what the code compiles")
        sys.exit(bool(different))
    for path, text in golden_files().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
