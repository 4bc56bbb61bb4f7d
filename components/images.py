"""The images that components name until a pipeline is compiled with released ones, by digest."""

CPU_IMAGE = "tpu-pipelines/cpu:unreleased"
TPU_IMAGE = "tpu-pipelines/tpu:unreleased"
SERVING_IMAGE = "tpu-pipelines/serving:unreleased"
