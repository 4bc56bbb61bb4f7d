import base64
import datetime
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import tensorflow as tf

from components.evaluate import charts
from components.evaluate.evaluate import evaluate
from components.evaluate.report import image_uri, most_confused, render, shorten

EVIL = '<script>alert("1")</script>'
VOID = {"meta", "img"}


class Page(HTMLParser):
    """Collects what a page is made of, and checks that every element is closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.texts: list[str] = []
        self.titles: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attributes if name in ("src", "href", "srcset", "data")]
        self.titles += [value or "" for name, value in attributes if name in ("title", "alt")]
        assert not [name for name, _ in attributes if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).replace("\N{NO-BREAK SPACE}", " ").split())


def test_figures_are_those_of_the_metrics(image_run):
    run = image_run([0, 1, 2, 0, 1, 2, 0, 1, 2, 0], [0, 2, 2, 0, 0, 2, 0, 1, 1, 0])
    run.write_history()
    evaluation = evaluate(run.model, run.dataset, batch_size=4)
    page = Page(render(evaluation, now=datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC)))
    for expected in (
        "70.0 % of 10 test examples right",
        "95 % interval 39.7 % to 89.2 %",
        "50.0 % for always answering “a”",
        f"Loss {evaluation.metrics.loss:.4f}",
        "Optimizer step 20",
        "local://tiny",
        "ffffffffffff",
        "epoch 2, whose weights were kept",
        "All 3 mistakes",
        "2026-01-02 03:04 UTC",
    ):
        assert expected in page.text, expected
    assert "a taken for b: 1 (20.0\N{NO-BREAK SPACE}%)" in page.titles


def test_page_needs_nothing_else(image_run):
    run = image_run([0, 1, 2], [0, 2, 2])
    html = render(evaluate(run.model, run.dataset, batch_size=4))
    page = Page(html)
    assert html.startswith("<!doctype html>")
    assert page.tags.isdisjoint({"script", "link", "iframe", "object", "embed", "base"})
    assert page.links
    assert all(link.startswith("data:image/png;base64,") for link in page.links)
    assert not re.search(r"url\(|@import|@font-face", html)
    assert "prefers-color-scheme: dark" in html


def test_text_from_data_is_escaped(text_run):
    run = text_run([f"{EVIL} {index}" for index in range(6)], [0, 1, 0, 1, 0, 1], names=[EVIL, '"><img src=x>'])
    evaluation = evaluate(run.model, run.dataset, batch_size=4)
    html = render(evaluation)
    assert "<script" not in html.lower()
    page = Page(html)
    assert not page.links
    assert evaluation.mistakes
    assert all(f"{EVIL} {mistake.index}" in page.text for mistake in evaluation.mistakes)


def test_image_alternative_is_escaped(image_run):
    run = image_run([0, 1, 2], [1, 2, 0], names=[EVIL, "b' onerror='x", 'c" onerror="x'])
    html = render(evaluate(run.model, run.dataset, batch_size=4))
    assert "<script" not in html.lower()
    page = Page(html)  # fails on an attribute that starts with `on`
    assert any(EVIL in title for title in page.titles)


def test_perfect_model_and_class_that_the_split_lacks(image_run):
    run = image_run([0, 0, 1], [0, 0, 1])
    page = Page(render(evaluate(run.model, run.dataset, batch_size=4)))
    assert "100.0 % of 3 test examples right" in page.text
    assert "None: every test example was answered right." in page.text
    assert "none in the test split" in page.text
    assert "Over the 2 of 3 classes" in page.text


def test_one_class_only(image_run):
    run = image_run([0, 0, 1], [0, 0, 0], names=["only", "other"])
    page = Page(render(evaluate(run.model, run.dataset, batch_size=4)))
    assert "Undefined: every test example is of the class 'only'" in page.text
    assert "ROC curve" not in page.text
    assert "The only mistake." in page.text


def test_two_classes_have_a_roc_curve(image_run):
    run = image_run([0, 1, 1], [0, 0, 1], names=["no", "yes"])
    assert "ROC curve of “yes”" in Page(render(evaluate(run.model, run.dataset, batch_size=4))).text


def test_fifty_classes(image_run):
    names = [f"class number {index}" for index in range(50)]
    labels = list(range(50)) * 2
    run = image_run([*range(50), *range(1, 50), 0], labels, names=names)
    html = render(evaluate(run.model, run.dataset, batch_size=64))
    Page(html)
    assert html.count('<td class="right"') + html.count('<td class="wrong"') == 100
    assert html.count('<td class="zero"') == 50 * 50 - 100
    assert "The 24 of 50 mistakes" in Page(html).text


def test_most_confused_pairs_come_first(image_run):
    run = image_run([0, 1, 1, 1, 2, 2], [0, 0, 0, 1, 0, 1])
    pairs = most_confused(evaluate(run.model, run.dataset, batch_size=4).metrics, ["a", "b", "c"])
    assert [(p.label, p.prediction, p.examples, p.share) for p in pairs] == [
        ("a", "b", 2, 0.5),
        ("b", "c", 1, 0.5),
        ("a", "c", 1, 0.25),
    ]


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_image_survives_as_png(channels):
    image = np.random.default_rng(0).integers(0, 256, [5, 7, channels], dtype=np.uint8)
    content = base64.b64decode(image_uri(image).removeprefix("data:image/png;base64,"))
    assert (tf.io.decode_png(content, channels=channels).numpy() == image).all()


def test_odd_channels_and_large_images_are_made_to_fit():
    for shape, expected in (((4, 4, 2), (4, 4, 1)), ((400, 100, 3), (192, 48, 3))):
        content = base64.b64decode(image_uri(np.zeros(shape, np.uint8)).removeprefix("data:image/png;base64,"))
        assert tf.io.decode_png(content).shape == expected


def test_shorten_cuts_at_a_word():
    assert shorten("  a\n b\t c ") == "a b c"
    assert shorten("word " * 100, 23) == "word word word word …"
    assert shorten("x" * 400) == "x" * 300 + " …"
    assert len(shorten("word " * 1000)) <= 302


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.974, "97.4 %"),
        (1.0, "100.0 %"),
        (0.9999, "> 99.9 %"),
        (0.0, "0.0 %"),
        (0.0001, "< 0.1 %"),
        (0.9994, "99.9 %"),
    ],
)
def test_percent_does_not_round_to_certainty(share, text):
    assert charts.percent(share).replace("\N{NO-BREAK SPACE}", " ") == text


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0.91, 0.985, [0.9, 0.92, 0.94, 0.96, 0.98, 1.0]),
        (0, 0, [0, 0.2, 0.4, 0.6, 0.8, 1]),
    ],
)
def test_ticks_are_round_and_span_the_values(low, high, expected):
    assert charts.nice_ticks(low, high) == pytest.approx(expected)


def test_line_chart_places_points_and_leaves_out_what_is_no_number():
    chart = charts.line_chart([1, 2, 3], [("t", "t", [0.0, float("nan"), 1.0]), ("v", "v", [None] * 3)], kept=3)
    frame = chart.frame
    assert [line.name for line in chart.lines] == ["t"]
    assert chart.lines[0].points == ((frame.left, frame.plot_bottom), (frame.plot_right, frame.top))
    assert chart.marker.at == frame.plot_right
    assert [tick.text for tick in chart.y_ticks] == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
    assert charts.line_chart([1], [("t", "t", [None])]) is None


def test_line_chart_of_one_epoch_and_of_accuracy():
    chart = charts.line_chart([1], [("t", "t", [0.985])], as_percent=True)
    assert len(chart.lines[0].points) == 1
    assert float(chart.y_ticks[-1].text.split("\N{NO-BREAK SPACE}")[0]) <= 100
    (_, y), frame = chart.lines[0].points[0], chart.frame
    assert frame.top <= y <= frame.plot_bottom
