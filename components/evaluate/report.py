"""Writes an evaluation as one HTML page that needs nothing else: no scripts, no fonts, no files beside it."""

import base64
import datetime
import importlib.resources
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
import numpy as np
import tensorflow as tf

from components.evaluate import charts
from components.evaluate.charts import percent
from components.evaluate.evaluate import Evaluation, Mistake
from components.evaluate.metrics import Metrics

TEMPLATE = "report.html.jinja"
TEXT_CHARACTERS = 300
# Larger images are scaled down for the page, and smaller ones shown with their pixels as squares.
IMAGE_SIDE = 192
CONFUSIONS = 8
# Above so many classes a cell of the confusion matrix is too narrow for a number of four digits.
WIDE_MATRIX_CLASSES = 16


@dataclass(frozen=True)
class Cell:
    """A cell of the confusion matrix: its text, its shade from 0 to 1, and its full meaning."""

    text: str
    shade: float
    title: str


@dataclass(frozen=True)
class Confusion:
    """Two classes of which the first was taken for the second, how often, and how many of the first there are."""

    label: str
    prediction: str
    examples: int
    support: int

    @property
    def share(self) -> float:
        """The share of the first class."""
        return self.examples / self.support


@dataclass(frozen=True)
class Card:
    """A mistake as the page shows it: an image as a data URI, or a text."""

    index: int
    label: str
    prediction: str
    confidence: str
    label_probability: str
    image: str
    text: str


def render(evaluation: Evaluation, *, now: datetime.datetime | None = None) -> str:
    """Returns the report as an HTML page. Every text that came from data is escaped.

    Args:
        evaluation: What the evaluation found.
        now: When the report says it was written; the present by default.
    """
    metrics, names = evaluation.metrics, evaluation.model.class_names
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["percent"] = percent
    template = environment.from_string(
        importlib.resources.files("components.evaluate").joinpath(TEMPLATE).read_text(encoding="utf-8")
    )
    f1s = [c.f1 for c in metrics.classes if c.f1 is not None]
    page = template.render(
        manifest=evaluation.manifest,
        model=evaluation.model,
        metrics=metrics,
        mistakes=metrics.examples - metrics.correct,
        facts=_facts(evaluation),
        most_frequent=max(metrics.classes, key=lambda c: c.support).name,
        curves=_training_curves(evaluation),
        matrix=_matrix(metrics, names),
        confusions=most_confused(metrics, names),
        lowest_f1=min(f1s) if len(f1s) > 2 and min(f1s) < max(f1s) else None,
        most_support=max(c.support for c in metrics.classes),
        few=charts.FEW_EXAMPLES,
        reliability=charts.reliability_chart(metrics.calibration),
        roc=charts.roc_chart(metrics.roc_curve) if metrics.roc_curve else None,
        cards=[_card(mistake, names) for mistake in evaluation.mistakes],
        written=(now or datetime.datetime.now(datetime.UTC)).strftime("%Y-%m-%d %H:%M UTC"),
    )
    return page.lstrip()  # the template's macros leave blank lines in front of the doctype


def most_confused(metrics: Metrics, names: Sequence[str]) -> list[Confusion]:
    """Returns the pairs of classes that were mixed up most often, the most frequent first."""
    pairs = [
        Confusion(names[row], names[column], count, sum(counts))
        for row, counts in enumerate(metrics.confusion_matrix)
        for column, count in enumerate(counts)
        if row != column and count
    ]
    return sorted(pairs, key=lambda pair: (-pair.examples, -pair.share))[:CONFUSIONS]


def shorten(text: str, characters: int = TEXT_CHARACTERS) -> str:
    """Returns a text with its white space joined, cut at a word's end if it is longer than `characters`."""
    joined = " ".join(text.split())
    if len(joined) <= characters:
        return joined
    cut = joined[:characters]
    return cut[: cut.rfind(" ") if " " in cut[characters // 2 :] else characters] + " …"


def image_uri(image: np.ndarray) -> str:
    """Returns an image, uint8 `[height, width, channels]`, as the data URI of a PNG."""
    if image.shape[2] not in (1, 3, 4):  # channels that no picture has: the first one as grey
        image = image[:, :, :1]
    if max(image.shape[:2]) > IMAGE_SIDE:
        size = [max(1, round(side * IMAGE_SIDE / max(image.shape[:2]))) for side in image.shape[:2]]
        image = tf.cast(tf.round(tf.image.resize(image, size, method="area")), tf.uint8)
    return "data:image/png;base64," + base64.b64encode(tf.io.encode_png(image).numpy()).decode("ascii")


def _card(mistake: Mistake, names: Sequence[str]) -> Card:
    return Card(
        index=mistake.index,
        label=names[mistake.label],
        prediction=names[mistake.prediction],
        confidence=percent(mistake.confidence),
        label_probability=percent(mistake.label_probability),
        image=image_uri(mistake.image) if mistake.image is not None else "",
        text=shorten(mistake.text) if mistake.text is not None else "",
    )


def _facts(evaluation: Evaluation) -> list[tuple[str, str]]:
    manifest, model, difference = evaluation.manifest, evaluation.model, evaluation.reference_difference
    best = ", ".join(f"{name.removeprefix('validation_')} {value:.4f}" for name, value in model.metric.items())
    same = manifest.digest == model.dataset_digest
    facts = [
        ("Model", model.builder),
        ("Optimizer step", f"{model.step:,}"),
        ("Validation at that step", best or "not recorded"),
        ("Precision of training", model.precision),
        ("Data source", manifest.source),
        ("Data fingerprint", manifest.fingerprint[:12]),
        ("Examples", manifest.counts()),
    ]
    if manifest.dropped:
        facts.append(("Rows left out", ", ".join(f"{reason}: {count:,}" for reason, count in manifest.dropped.items())))
    if manifest.tokenizer:
        facts.append(("Tokenizer", f"{manifest.tokenizer.name}, {manifest.tokenizer.max_length} tokens"))
    if difference is not None:
        facts.append(
            ("Largest difference from the trainer's probabilities", f"{difference:.1e}" if difference else "none")
        )
    if not same:
        facts.append(("Trained on other data", f"digest {model.dataset_digest[:12]}"))
    return facts


def _training_curves(evaluation: Evaluation) -> dict[str, Any] | None:
    history = evaluation.history
    if not history:
        return None
    epochs = [entry["epoch"] for entry in history]
    kept = next((entry["epoch"] for entry in history if entry.get("step") == evaluation.model.step), None)

    def chart(name: str, *, as_percent: bool) -> charts.LineChart | None:
        return charts.line_chart(
            epochs,
            [
                ("training", "training", [entry.get(name) for entry in history]),
                ("validation", "validation", [entry.get(f"validation_{name}") for entry in history]),
            ],
            as_percent=as_percent,
            kept=kept,
        )

    return {
        "loss": chart("loss", as_percent=False),
        "accuracy": chart("accuracy", as_percent=True),
        "kept": kept,
        "history": history,
        "seconds": sum(entry.get("seconds") or 0 for entry in history),
    }


def _matrix(metrics: Metrics, names: Sequence[str]) -> list[list[Cell]]:
    wide = len(names) > WIDE_MATRIX_CLASSES
    rows = []
    for row, counts in enumerate(metrics.confusion_matrix):
        total = sum(counts)
        cells = []
        for column, count in enumerate(counts):
            # The root shows a share of a few per cent, which is where mistakes are.
            shade = (count / total) ** 0.5 if count else 0.0
            title = f"{names[row]} taken for {names[column]}: {count:,} ({percent(count / total)})" if count else ""
            cells.append(Cell(_short_count(count) if wide else f"{count:,}", round(shade, 3), title))
        rows.append(cells)
    return rows


def _short_count(count: int) -> str:
    if count < 1000:
        return str(count)
    for unit, size in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if count < size * 999.5:
            return f"{count / size:.1f}{unit}" if count < size * 9.95 else f"{count / size:.0f}{unit}"
    return f"{count:.0e}"
