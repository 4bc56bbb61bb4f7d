"""The on-disk contract between steps: TFRecord shards and a manifest that is written last."""
