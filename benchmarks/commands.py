"""Times the commands that compile and check, in turns, and whether compiling twice gives the same bytes.

python benchmarks/commands.py [ROUNDS]
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROGRAM = str(Path(sys.executable).with_name("tpu-pipelines"))
IMAGES = ["--images", "tests/golden/images.json"]


def seconds_of(*words: str) -> float:
    """Returns the seconds that a command takes as a whole process."""
    start = time.monotonic()
    subprocess.run([PROGRAM, *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start


def main(rounds: int) -> None:
    """Prints the median of each command's times, and the range."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "first.yaml"), Path(folder, "second.yaml")
        commands = {
            "--help": ["--help"],
            "compile": ["compile", "configs/mnist.yaml", *IMAGES, "-o", str(first)],
            "submit --dry-run": ["submit", "configs/vertex.example.yaml", *IMAGES, "--dry-run"],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, words in commands.items():
                times[name].append(seconds_of(*words))
        for name, seconds in times.items():
            print(f"{name:<18} {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})")
        seconds_of("compile", "configs/mnist.yaml", *IMAGES, "-o", str(second))
        print(f"compiled twice: {'the same bytes' if first.read_bytes() == second.read_bytes() else 'DIFFERENT BYTES'}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
