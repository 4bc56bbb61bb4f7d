"""What Cloud Build refuses at submission, or takes for something else, found in a build's file beforehand."""

import re
from collections.abc import Iterator
from typing import Any

Build = dict[str, Any]

# docs.cloud.google.com/build/docs/configuring-builds/substitute-variable-values
BUILT_IN = {
    *("PROJECT_ID", "PROJECT_NUMBER", "BUILD_ID", "LOCATION"),
    *("TRIGGER_NAME", "COMMIT_SHA", "REVISION_ID", "SHORT_SHA"),
    *("REPO_NAME", "REPO_FULL_NAME", "BRANCH_NAME", "TAG_NAME"),
    *("REF_NAME", "TRIGGER_BUILD_CONFIG_PATH", "SERVICE_ACCOUNT_EMAIL", "SERVICE_ACCOUNT"),
    *("_HEAD_BRANCH", "_BASE_BRANCH", "_HEAD_REPO_URL", "_PR_NUMBER"),
}
_VARIABLE = re.compile(r"\$(?:(?P<escaped>\$)|\{(?P<braced>\w*)[^}]*\}|(?P<bare>\w+))")


def faults(build: Build) -> list[str]:
    """Returns a sentence for each thing that is wrong."""
    return [*_substitutions(build), *_shell(build), *_logging(build), *_steps(build)]


def expand(text: str, values: dict[str, str]) -> str:
    """Returns a text with its substitutions made, as Cloud Build makes them in all but scripts."""
    return _VARIABLE.sub(lambda match: "$" if match["escaped"] else values.get(_name(match), ""), text)


def longest_path(build: Build) -> dict[str, int]:
    """Returns the second at which each step ends at the latest, by its timeout and what it waits for."""
    ends: dict[str, int] = {}
    for step in build["steps"]:
        ends[step["id"]] = seconds(step["timeout"]) + max((ends[name] for name in waits(step)), default=0)
    return ends


def before(build: Build, name: str) -> set[str]:
    """Returns the steps that have ended when a step begins."""
    steps = {step["id"]: step for step in build["steps"]}
    direct = waits(steps[name])
    return set(direct).union(*(before(build, other) for other in direct))


def waits(step: Build) -> list[str]:
    return [name for name in step["waitFor"] if name != "-"]


def seconds(duration: str) -> int:
    return int(duration.removesuffix("s"))


def _name(match: re.Match[str]) -> str:
    return match["braced"] or match["bare"] or ""


def _texts(value: Any, *skipped: str) -> Iterator[str]:
    """Yields every text of a build but what lies under some keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in skipped:
                yield from _texts(inner, *skipped)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, *skipped)


def _used(build: Build) -> set[str]:
    texts = _texts(build, "substitutions", "script")
    return {_name(match) for text in texts for match in _VARIABLE.finditer(text) if not match["escaped"]}


def _substitutions(build: Build) -> Iterator[str]:
    declared, used = set(build.get("substitutions", {})), _used(build)
    for key in sorted(declared):
        if not re.fullmatch(r"_[A-Z0-9_]+", key):
            yield f"The substitution {key} is no _[A-Z0-9_]+."
        elif key not in used:
            yield f"The substitution {key} is not used."
    for key in sorted(used - declared - BUILT_IN):
        yield f"${key} is no substitution; a shell's variable is written $${key}."
    if "$" in build.get("logsBucket", ""):
        yield "Nothing is substituted in logsBucket."


def _shell(build: Build) -> Iterator[str]:
    for step in build["steps"]:
        script, given = step.get("script", ""), {text.partition("=")[0] for text in step.get("env", [])}
        if "$$" in script:
            yield f"{step['id']}: nothing is substituted in a script, so its $$ is the shell's own number."
        for name in sorted(set(re.findall(r"\$\{?(\w+)", script)) - given):
            if name.startswith("_") or name in BUILT_IN:
                yield f"{step['id']}: {name} is not in the script's env."


def _logging(build: Build) -> Iterator[str]:
    logging, bucket = build.get("options", {}).get("logging"), build.get("logsBucket")
    if logging is None and bucket is None:
        yield "A build with an account of its own needs options.logging or logsBucket."
    if logging == "CLOUD_LOGGING_ONLY" and bucket is not None:
        yield "CLOUD_LOGGING_ONLY and logsBucket exclude each other."
    if "serviceAccount" in build:
        yield "The account is the trigger's to give."


def _steps(build: Build) -> Iterator[str]:
    seen: set[str] = set()
    for number, step in enumerate(build["steps"]):
        name = step.get("id", f"step {number}")
        for key in ("id", "timeout", "waitFor"):
            if not step.get(key):
                yield f"{name} has no {key}."
        if name in seen:
            yield f"There are two steps {name}."
        # Steps begin in the file's order, so one can wait for earlier ones only; a circle is impossible then.
        for other in step.get("waitFor", []):
            if other != "-" and other not in seen:
                yield f"{name} waits for {other}, which is no step before it."
        if ("script" in step) and ("args" in step or "entrypoint" in step):
            yield f"{name} has a script, and args or an entrypoint too."
        seen.add(name)
