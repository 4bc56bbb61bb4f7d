"""Keeps `import tensorflow` in the TPU image from hanging where there is no Google Cloud: on a laptop, or in CI.

tensorflow-tpu asks the metadata server, 30 times for each variable, as it is imported; TPU_SKIP_MDS_QUERY=1 keeps it
from that, and must never be set on a TPU. Where no metadata server answers, there is no TPU either, so nothing is lost.
Run at the start of every Python process in the image, by `off_google_cloud.pth`.
"""

import os
import socket

METADATA_SERVER = ("169.254.169.254", 80)
TRIES, SECONDS = 2, 1.0


def on_google_cloud() -> bool:
    """Says whether Google's metadata server answers; other clouds have theirs at the same address."""
    for _ in range(TRIES):
        try:
            with socket.create_connection(METADATA_SERVER, timeout=SECONDS) as connection:
                connection.sendall(b"GET / HTTP/1.0\r\nHost: metadata\r\nMetadata-Flavor: Google\r\n\r\n")
                return b"metadata-flavor: google" in connection.recv(4096).lower()
        except OSError:
            continue
    return False


if "TPU_SKIP_MDS_QUERY" not in os.environ and not on_google_cloud():
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"
