"""The sample run in processes and in containers, in turn; sizes of the images; a rebuild after a change of the code.

python benchmarks/containers.py [RUNS]      needs a Docker engine and the images: make images
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROGRAM = Path(sys.executable).with_name("tpu-pipelines")
CONFIG = "configs/mnist_sample.yaml"
RUNNERS = ("subprocess", "docker")
DOCKER = os.environ.get("DOCKER", "docker")


def seconds_of_a_run(runner: str, folder: Path) -> float:
    """Runs the sample once and returns its wall time."""
    words = [PROGRAM, "run", CONFIG, "--runner", runner, "--runs", folder / runner]
    subprocess.run(words, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    return json.loads((folder / runner / "latest" / "summary.json").read_text(encoding="utf-8"))["seconds"]


def seconds_of_a_rebuild(folder: Path) -> float:
    """Changes one file of the code, in a copy, and builds the cpu image from it."""
    tree = folder / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".venv", ".git", "runs", "__pycache__", ".*_cache"))
    with (tree / "components" / "errors.py").open("a", encoding="utf-8") as file:
        file.write(f"# {time.time()}\n")
    start = time.monotonic()
    environment = {**os.environ, "TAG": "changed"}
    build = tree / "tests" / "containers" / "build_images.sh"
    subprocess.run([build, "cpu"], env=environment, capture_output=True, check=True)
    return time.monotonic() - start


def main(runs: int) -> None:
    """Prints the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        times: dict[str, list[float]] = {runner: [] for runner in RUNNERS}
        for _ in range(runs):
            for runner in RUNNERS:
                times[runner].append(seconds_of_a_run(runner, folder))
        for runner, each in times.items():
            print(f"{runner:<11} median {statistics.median(each):.1f} s of {each}")
        ratio = statistics.median(times["docker"]) / statistics.median(times["subprocess"])
        print(f"docker / subprocess: {ratio:.2f}")
        rebuilds = sorted(seconds_of_a_rebuild(Path(tempfile.mkdtemp(dir=folder))) for _ in range(runs))
        print(f"rebuild     median {statistics.median(rebuilds):.1f} s")
    for image in ("cpu", "tpu", "serving"):
        words = [DOCKER, "image", "inspect", "--format", "{{.Size}}", f"tpu-pipelines/{image}:unreleased"]
        size = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        print(f"{image:<11} {int(size) / 1e9:.2f} GB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
