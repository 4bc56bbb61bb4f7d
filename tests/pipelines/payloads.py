"""What GCPC's launcher sends for a task of a compiled pipeline, worked out from the YAML alone."""

import json
import re

from google_cloud_pipeline_components.container.v1.gcp_launcher.utils import json_util

_INPUT = re.compile(r"\{\{\$\.inputs\.parameters\['(\w+)'\]\}\}")


def payload(spec, task="train"):
    """Returns the CustomJob of a task, as the launcher makes it: defaults filled in, empty fields left out."""
    component = spec["components"][f"comp-{task}"]
    arguments = spec["deploymentSpec"]["executors"][component["executorLabel"]]["container"]["args"]
    definitions = component["inputDefinitions"]["parameters"]

    def value(match):
        default = definitions[match[1]].get("defaultValue")
        # Vertex AI writes a text as it is and anything else as JSON.
        return default if isinstance(default, str) else json.dumps(default)

    text = _INPUT.sub(value, arguments[arguments.index("--payload") + 1])
    return json_util.recursive_remove_empty(json.loads(text))
