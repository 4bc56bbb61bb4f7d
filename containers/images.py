"""Joins what `containers/build.sh` pushed into the file that names a pipeline's images, by digest.

python3 containers/images.py [-o images.json]
"""

import argparse
import json
import re
import sys
from pathlib import Path

IMAGES = ("cpu", "tpu", "serving")
BUILD = Path(__file__).parent.parent / "build"


def references(folder: Path) -> dict[str, str]:
    """Returns `HOST/PROJECT/REPOSITORY/IMAGE@sha256:DIGEST` by image, as `build.sh` left them.

    Raises:
        ValueError: if an image has none, or one without a digest.
    """
    found = {}
    for image in IMAGES:
        path = folder / f"{image}.ref"
        text = path.read_text(encoding="utf-8").strip() if path.exists() else ""
        if not re.fullmatch(rf"\S+/{image}@sha256:[0-9a-f]{{64}}", text):
            raise ValueError(
                f"{path} says {text!r}, expected HOST/PROJECT/REPOSITORY/{image}@sha256:DIGEST; push the image: "
                f"REGISTRY=HOST/PROJECT/REPOSITORY containers/build.sh {image}."
            )
        found[image] = text
    return found


def main() -> None:
    """Writes the file, whole or not at all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("images.json"))
    output = parser.parse_args().output
    try:
        text = json.dumps(references(BUILD), indent=2) + "\n"
    except ValueError as error:
        sys.exit(str(error))
    part = output.with_name(output.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(output)
    print(output)


if __name__ == "__main__":
    main()
