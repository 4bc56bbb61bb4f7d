"""The documentation: its commands run, its links lead somewhere, its generated page is the schema's."""

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BIN = Path(sys.executable).parent


def commands():
    for page in PAGES:
        for block in re.findall(r"```bash\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
            for line in block.splitlines():
                yield pytest.param(line, id=f"{page.name}: {line}")


@pytest.mark.slow
@pytest.mark.parametrize("line", commands())
def test_a_command_of_the_docs_works(line, tmp_path):
    """`run` is tried as `check` with the same settings, and nothing is sent: tests/pipelines do these things."""
    words = shlex.split(line.replace("images.json", "tests/golden/images.json"))
    match words:
        case ["make", *targets]:
            targets = [word for word in targets if "=" not in word]
            known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
            assert set(targets) <= known
            for config in (word.removeprefix("CONFIG=") for word in words if word.startswith("CONFIG=")):
                assert (ROOT / config).exists()
            return
        case ["source", path]:
            assert path == ".venv/bin/activate"
            return
        case ["tpu-pipelines", "run", "--resume", _]:
            words = ["tpu-pipelines", "run", "--help"]
        case ["tpu-pipelines", "run", config, *options]:
            for option in ("--runs", "--runner", "--images"):
                if option in options:
                    index = options.index(option)
                    options[index : index + 2] = []
            words = ["tpu-pipelines", "check", config, *options]
        case ["tpu-pipelines", "compile", *options]:
            places = {"pipeline.yaml": tmp_path / "pipeline.yaml", "components.d": tmp_path / "components.d"}
            words = ["tpu-pipelines", "compile", *(str(places.get(word, word)) for word in options)]
        case ["tpu-pipelines", "submit", *options]:
            words = ["tpu-pipelines", "submit", *(word for word in options if word != "--wait"), "--dry-run"]
        case ["tpu-pipelines", "status" | "cancel" as command, _]:
            words = ["tpu-pipelines", command, "--help"]
    assert words[0] == "tpu-pipelines"
    result = subprocess.run([BIN / words[0], *words[1:]], capture_output=True, text=True, check=False, cwd=ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_is_left_to_be_filled_in(page):
    assert not re.search(r"\b(FIGURES|TODO|TBD|XXX)\b", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_settings_page_is_the_schemas():
    page = runpy.run_path(str(ROOT / "docs" / "settings.py"))["page"]()
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == page, "run: python docs/settings.py"


def test_from_clone_to_vertex_are_four_commands():
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```sh\n(.*?)```", page, re.S)
    commands = [shlex.split(line) for line in block.splitlines()]
    assert len(commands) <= 4
    assert (ROOT / commands[0][1]).exists()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    assert {words[1] for words in commands if words[0] == "make"} <= targets
    for target in ("infra", "images", "submit", "teardown"):
        assert f"| `make {target}" in page, "what it costs, and how to undo it"
