import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from kfp import dsl

from components.notify import component, webhook
from components.notify.notify import LONGEST_ERROR, notify
from components.step import log

SECRET = "/services/T0/B0/secret?key=secret&token=secret"
RESOURCE = "projects/123456/locations/europe-west4/pipelineJobs/digits-1"
LINK = "https://console.cloud.google.com/vertex-ai/locations/europe-west4/pipelines/runs/digits-1?project=123456"


class Hook:
    """A webhook on this machine.

    Attributes:
        url: Its address.
        answers: Status codes to answer with, one after the other; 200 once they are used up.
        requests: Path, type and content of what was posted.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}{SECRET}"
        self.answers: list[int] = []
        self.requests: list[tuple[str, str, dict]] = []


@pytest.fixture
def hook(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found.requests.append((self.path, self.headers["Content-Type"], content))
            status = found.answers.pop(0) if found.answers else 200
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", found.url + "/elsewhere")
            self.end_headers()

        def do_GET(self) -> None:  # a followed redirect
            self.do_POST()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    found = Hook(server.server_port)
    yield found
    server.shutdown()
    server.server_close()


@pytest.fixture
def logged(caplog, monkeypatch):
    """The log, in which no test may leave a webhook's secret."""
    monkeypatch.setattr(log, "propagate", True)
    caplog.set_level(logging.DEBUG)
    yield caplog
    assert "secret" not in caplog.text


def warnings(logged):
    return [record.getMessage() for record in logged.records if record.levelno == logging.WARNING]


@pytest.fixture
def waits(monkeypatch):
    """Seconds that were waited, in no time."""
    seconds: list[float] = []
    monkeypatch.setitem(webhook.post.__kwdefaults__, "wait", seconds.append)
    return seconds


def test_the_notice_is_posted_with_one_readable_line(hook, logged, waits):
    notice = {"state": "SUCCEEDED", "steps": {"train": {"seconds": 2.5}}}
    assert webhook.post(hook.url, notice, "digits-1 SUCCEEDED")
    assert hook.requests == [
        (SECRET, "application/json; charset=UTF-8", notice | {"text": "digits-1 SUCCEEDED"}),
    ]
    assert "The notice was sent to the webhook at 127.0.0.1." in logged.text
    assert waits == warnings(logged) == []


def test_a_chat_gets_the_line_alone(hook, logged, monkeypatch):
    monkeypatch.setattr(webhook, "_CHATS", ("127.0.0.1",))
    assert webhook.post(hook.url, {"state": "SUCCEEDED"}, "a line with é")
    assert hook.requests[0][2] == {"text": "a line with é"}


def test_the_chats_are_those_that_people_use():
    assert webhook._CHATS == ("chat.googleapis.com", "hooks.slack.com")


@pytest.mark.parametrize("answers", [[503], [500, 429]])
def test_it_is_tried_again(hook, logged, waits, answers):
    hook.answers = list(answers)
    assert webhook.post(hook.url, {}, "x")
    assert len(hook.requests) == len(answers) + 1
    assert waits == [1.0, 4.0][: len(answers)]
    assert warnings(logged) == []


def test_after_three_tries_it_is_left(hook, logged, waits):
    hook.answers = [503, 503, 502, 200]
    assert not webhook.post(hook.url, {}, "x")
    assert len(hook.requests) == 3
    (warning,) = warnings(logged)
    assert warning.startswith("The notice was not sent: the webhook at 127.0.0.1 answered HTTP 502; ")


@pytest.mark.parametrize("status", [400, 403, 404, 410, 302, 308])
def test_a_refusal_is_final_and_a_redirect_is_not_followed(hook, logged, waits, status):
    hook.answers = [status]
    assert not webhook.post(hook.url, {}, "x")
    assert len(hook.requests) == 1
    assert f"127.0.0.1 answered HTTP {status}; " in warnings(logged)[0]


def test_a_host_that_does_not_listen(hook, logged, waits):
    assert not webhook.post("http://127.0.0.1:9" + SECRET, {}, "x")
    assert waits == [1.0, 4.0]
    assert "127.0.0.1 could not be reached: ConnectionRefusedError (Connection refused); " in warnings(logged)[0]


def test_a_host_that_does_not_answer(hook, logged, waits, monkeypatch):
    monkeypatch.setattr(webhook, "TIMEOUT_SECONDS", 0.05)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as silent:  # listens, and serves nobody
        assert not webhook.post(f"http://127.0.0.1:{silent.server_port}{SECRET}", {}, "x")
    assert "127.0.0.1 could not be reached: TimeoutError; " in warnings(logged)[0]


@pytest.mark.parametrize("url", [f"https://127.0.0.1:0x{SECRET}", f"http://127.0.0.1:1/a b{SECRET}\n"])
def test_an_address_that_python_refuses(logged, waits, url):
    assert not webhook.post(url, {}, "x")
    assert len(warnings(logged)) == 1
    assert waits == []


@pytest.mark.parametrize(
    "url",
    [
        f"http://example.com{SECRET}",
        f"http://127.0.0.1.example.com{SECRET}",
        f"ftp://example.com{SECRET}",
        f"file://{SECRET}",
        f"hooks.slack.com{SECRET}",
        f"https://{SECRET}",
        f"https://[x{SECRET}",
        "secret",
    ],
)
def test_only_https_is_called(logged, waits, url):
    assert not webhook.post(url, {}, "x")
    assert warnings(logged) == [
        "The notice was not sent: the webhook is not a URL that starts with https:// and names a host."
    ]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://hooks.slack.com/x", "hooks.slack.com"),
        ("https://me:secret@Example.com:8443/x", "example.com"),
        ("http://localhost:8080/x", "localhost"),
        ("http://127.0.0.1/x", "127.0.0.1"),
    ],
)
def test_hosts(url, host):
    assert webhook._host(url) == host


# The notice


def record(folder, step, **fields):
    target = folder / "digits-1" / step / "step.json"
    target.parent.mkdir(parents=True)
    target.write_text(json.dumps({"step": step, "started": 1, "seconds": 62} | fields))


def test_a_failed_run_in_one_line_with_its_link(tmp_path, hook, logged):
    record(tmp_path, "train", state="FAILED", error="The loss is NaN\nat step 3.")
    told = notify(str(tmp_path), "digits-1", state="FAILED", resource_name=RESOURCE, webhook=hook.url)
    assert told["link"] == LINK
    line = f"digits-1 FAILED (train 1 min 02 s) at train: The loss is NaN at step 3. {LINK}"
    assert hook.requests[0][2] == told | {"text": line}


def test_a_run_on_this_machine_has_no_link(tmp_path, hook, logged):
    record(tmp_path, "compare", state="SUCCEEDED", verdict="REJECTED")
    notify(str(tmp_path), "digits-1", state="SUCCEEDED", webhook=hook.url)
    assert hook.requests[0][2]["text"] == "digits-1 REJECTED (compare 1 min 02 s)"
    assert hook.requests[0][2]["link"] == ""


def test_a_long_error_is_cut(tmp_path, hook, logged):
    record(tmp_path, "train", state="FAILED", error="x" * (LONGEST_ERROR + 1))
    notify(str(tmp_path), "digits-1", state="FAILED", webhook=hook.url)
    sent = hook.requests[0][2]
    assert sent["text"] == "digits-1 FAILED (train 1 min 02 s) at train: " + "x" * LONGEST_ERROR + "…"
    assert len(sent["error"]) == LONGEST_ERROR + 1


@pytest.mark.parametrize("works", [True, False])
def test_the_step_succeeds_whatever_the_webhook_does(tmp_path, hook, waits, capsys, works):
    hook.answers = [] if works else [404]
    status = dsl.PipelineTaskFinalStatus(
        state="SUCCEEDED",
        pipeline_job_resource_name=RESOURCE,
        pipeline_task_name="exit-handler-1",
        error_code=None,
        error_message=None,
    )
    notice = dsl.Artifact(name="notice", uri=str(tmp_path / "task" / "notice"))
    component.notify.python_func(
        status=status, pipeline_root=str(tmp_path), job="digits-1", webhook=hook.url, notice=notice
    )
    assert len(hook.requests) == 1
    assert json.loads((tmp_path / "task" / "step.json").read_text())["state"] == "SUCCEEDED"
    assert json.loads((tmp_path / "task" / "notice").read_text())["link"] == LINK
    said = capsys.readouterr().out
    assert ("WARNING" in said) is not works
    assert (
        "secret"
        not in said + (tmp_path / "task" / "step.json").read_text() + (tmp_path / "task" / "notice").read_text()
    )
