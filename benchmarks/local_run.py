"""Runs configs on this machine; prints their seconds and accuracy, and where the time goes that is not the steps' own.

    python benchmarks/local_run.py [CONFIG[,KEY=VALUE...] ...]

A step's own work is what its record says (`step.json`: its imports and its body). The rest of its wall time is the
start of Python and of KFP's executor, and the process's end. The rest of the run is KFP's driver: its imports, the
compilation of the pipeline, and what lies between the steps. Without arguments: both sample configs, both loops.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from pipelines.local.folder import RunFolder

ROOT = Path(__file__).parent.parent
COMMAND = str(Path(sys.executable).with_name("tpu-pipelines"))
DEFAULT = [
    f"configs/{name}.yaml{change}"
    for name in ("mnist_sample", "bbc_news_sample")
    for change in ("", ",training.loop=custom")
]


def measure(config: str, overrides: list[str], runs: Path) -> None:
    """Runs one config and prints a block of figures."""
    words = [COMMAND, "run", config, "--runs", str(runs)]
    for override in overrides:
        words += ["--set", override]
    status = subprocess.run(words, stdout=subprocess.DEVNULL, check=False, cwd=ROOT).returncode
    folder = RunFolder(runs / "latest")
    summary = json.loads(folder.summary_file.read_text(encoding="utf-8"))
    records = folder.records()
    head = (ROOT / config).read_text(encoding="utf-8")
    promised = {key: re.search(rf"^# {key}: (.*)$", head, re.M) for key in ("minutes", "test accuracy")}

    print(f"\n{config} {' '.join(overrides)}: {summary['state']}, exit status {status}")
    print(f"  test accuracy {summary['metrics'].get('accuracy', float('nan')):.4f}, {summary['seconds']:.1f} s", end="")
    print("; the config's head says " + ", ".join(f"{key} {match[1]}" for key, match in promised.items() if match))
    print(f"  {'step':<10}{'wall s':>8}{'own work s':>12}{'KFP s':>8}")
    own = 0.0
    for name, step in summary["steps"].items():
        if name in records:
            work = records[name]["seconds"]
            own += work
            print(f"  {name:<10}{step['seconds']:>8.1f}{work:>12.1f}{step['seconds'] - work:>8.1f}")
    steps = sum(step["seconds"] for step in summary["steps"].values())
    print(f"  {'driver':<10}{summary['seconds'] - steps:>8.1f}{0:>12.1f}{summary['seconds'] - steps:>8.1f}")
    cost = summary["seconds"] - own
    print(f"  {'run':<10}{summary['seconds']:>8.1f}{own:>12.1f}{cost:>8.1f}")
    print(f"  KFP's own cost: {cost:.1f} s, {cost / summary['seconds']:.0%} of the run")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for argument in sys.argv[1:] or DEFAULT:
            name, *changes = argument.split(",")
            measure(name, changes, Path(folder))
