"""The folder of an exported model, as the export step writes it and a server reads it."""

CONTRACT = "contract.json"
LABELS = "labels.json"
FORMAT_VERSION = 1
# The signature that takes raw input: uint8 images, or strings.
SERVING = "serving_default"
