"""Times the set-up of a fresh clone, with an empty package cache and with a warm one.

python benchmarks/set_up.py
"""

import os
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


def seconds_of(clone: Path, cache: Path) -> float:
    """Returns the seconds that `make setup` takes in a clone."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    environment = {**os.environ, "UV_CACHE_DIR": str(cache), "PIP_NO_CACHE_DIR": "1"}
    start = time.monotonic()
    subprocess.run(["make", "setup"], cwd=clone, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder, "cache")
        print(f"make setup, empty cache: {seconds_of(Path(folder, 'first'), cache):.0f} s")
        print(f"make setup, warm cache:  {seconds_of(Path(folder, 'second'), cache):.0f} s")
