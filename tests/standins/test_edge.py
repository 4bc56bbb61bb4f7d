"""Google's own clients, unpatched, against this machine: what they write and read is right, on a bad network too."""

import http.client
import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.standins.edge import KINDS, STORAGE_HOSTS, TOKEN, Faults, edge
from tests.standins.storage import storage

CLIENTS = ("component_files", "errors", "records", "checkpoints", "models", "storage_client")


def run(network, *arguments):
    environment = {**os.environ, **network.environment, "TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = [sys.executable, *arguments]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}\n" + "\n".join(network.requests[-20:])
    return result.stdout


def test_a_fault_comes_every_so_many_requests_and_the_kinds_take_turns():
    faults = Faults(every=10, first=3)
    found = {request: faults.kind(request) for request in range(1, 55) if faults.kind(request)}
    assert found == {3: "unavailable", 13: "reset", 23: "lost", 33: "slow", 43: "unavailable", 53: "reset"}


def test_credentials_are_found_and_a_host_without_a_route_is_refused(tmp_path):
    script = """
import google.auth, requests
from google.auth.transport.requests import AuthorizedSession, Request
credentials, project = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
credentials.refresh(Request())
print(credentials.token, project)
try:
    requests.get("https://example.com/")
except requests.exceptions.ProxyError as error:
    print("502" in str(error))
"""
    with edge({}, tmp_path) as network:
        answer = run(network, "-c", script)
    assert answer.split() == [TOKEN, "test-project", "True"]
    assert network.unknown_hosts == {"example.com": 1}
    assert network.connections == {"oauth2.googleapis.com": 1}


def test_storage_answers_as_the_service_does_where_tensorflow_depends_on_it():
    with storage() as server:

        def ask(method, path, body=None, **headers):
            connection = http.client.HTTPConnection("127.0.0.1", server.port)
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            with connection.getresponse() as answer:
                return answer.status, answer.headers, answer.read()

        upload = "/upload/storage/v1/b/bucket/o?uploadType="
        status, headers, _ = ask("POST", upload + "resumable&name=a")
        assert (status, headers["Location"][:9]) == (200, "https://1")
        session = headers["Location"].partition("/upload")[1] + headers["Location"].partition("/upload")[2]
        status, headers, _ = ask("PUT", session, Content_Range="bytes */3")
        assert (status, headers["Range"]) == (308, None)
        assert ask("PUT", session, b"abc", Content_Range="bytes 0-2/3")[0] == 200
        assert server.names("bucket") == ["a"]
        assert server.read("bucket", "a") == b"abc"
        assert ask("GET", "/bucket/a", Range="bytes=1-9")[0::2] == (206, b"bc")
        assert ask("GET", "/bucket/a", Range="bytes=3-9")[0::2] == (416, b"")
        assert ask("POST", upload + "media&name=folder%2F&ifGenerationMatch=0")[0] == 200
        assert ask("POST", upload + "media&name=folder%2F&ifGenerationMatch=0")[0] == 412


@pytest.mark.slow
@pytest.mark.parametrize("faults", [None, Faults(every=7, first=2)], ids=["good", "bad"])
def test_tensorflow_and_the_storage_client_work_on_a_bucket(faults, tmp_path):
    with storage() as server, edge(server.routes, tmp_path, faults) as network:
        answer = run(network, "-m", "tests.standins.clients", *CLIENTS)
    assert [line.split()[0] for line in answer.splitlines() if line.endswith(" done")] == list(CLIENTS)
    assert "gs://no-such-bucket/run/prepare can't be written (" in answer
    assert not network.unknown_hosts
    assert not server.names("bucket", "new/")
    requests = sum(request.split()[1].startswith(STORAGE_HOSTS) for request in network.requests)
    expected = Counter(kind for n in range(1, requests + 1) if faults and (kind := faults.kind(n)))
    assert network.faults == expected
    assert set(expected) == (set(KINDS) if faults else set())
