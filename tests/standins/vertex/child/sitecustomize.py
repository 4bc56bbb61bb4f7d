"""Where the children of the stand-in differ from containers on Vertex AI. Python runs this file when it starts.

Three things only, the last two when the module concerned is imported:
- `/gcs`, the mount of Cloud Storage, is a folder of the stand-in; an object that is read there is fetched first;
- Google's clients use REST unless told otherwise, since the stand-in speaks no gRPC (`VERTEX_STANDIN_PATCHES` names the
  one client that this is for, in a process that is itself under test);
- Google's launchers look after their job five times a second, not every 20 s.
"""

import builtins
import importlib.abc
import importlib.machinery
import os
import re
import sys
from pathlib import Path

POLL_SECONDS = 0.2


def _mount(module):
    if folder := os.environ.get("VERTEX_STANDIN_GCS"):
        module._GCS_LOCAL_MOUNT_PREFIX = folder


def _prefer_rest(module):
    for name, value in list(vars(module).items()):
        if name.endswith("ClientMeta"):
            value._transport_registry.move_to_end("rest", last=False)


def _poll_faster(module):
    module._POLLING_INTERVAL_IN_SECONDS = POLL_SECONDS


WANTED = os.environ.get("VERTEX_STANDIN_PATCHES", "")
PATCHES = (
    (re.compile(r"kfp\.dsl\.types\.artifact_types"), _mount),
    (re.compile(r"google\.cloud\.(aiplatform_v1(beta1)?|resourcemanager_v3)\.services\.\w+\.client"), _prefer_rest),
    (
        re.compile(r"google_cloud_pipeline_components\.container\.v1\.gcp_launcher\.(job|lro)_remote_runner"),
        _poll_faster,
    ),
)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules as usual, and has those of `PATCHES` patched as soon as they have run."""

    def find_spec(self, name, path=None, target=None):
        patch = next((patch for pattern, patch in PATCHES if WANTED in name and pattern.fullmatch(name)), None)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if patch else None
        if spec is not None:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                patch(module)

            spec.loader.exec_module = exec_module
        return spec


_open = builtins.open


def _open_mounted(file, *arguments, **options):
    """Opens a file, `/gcs/BUCKET/NAME` (where Google's operators look for artifacts) below the stand-in's mount."""
    if isinstance(file, str) and file.startswith("/gcs/"):
        bucket, _, name = file.removeprefix("/gcs/").partition("/")
        file = Path(os.environ["VERTEX_STANDIN_GCS"], bucket, name)
        if not file.exists():
            from google.cloud import storage

            file.parent.mkdir(parents=True, exist_ok=True)
            storage.Client().bucket(bucket).blob(name).download_to_filename(file)
    return _open(file, *arguments, **options)


if "VERTEX_STANDIN_GCS" in os.environ:
    builtins.open = _open_mounted
sys.meta_path.insert(0, _Finder())
