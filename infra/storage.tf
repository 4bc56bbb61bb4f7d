# One bucket a region, single-region each: training supports no bucket that spans regions.
resource "google_storage_bucket" "runs" {
  for_each = toset(var.regions)

  name                        = "${local.bucket_prefix}-${each.value}"
  location                    = upper(each.value)
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = var.force_destroy

  # Training writes checkpoints and deletes old ones all the time; each would be paid for again while it can be had back.
  soft_delete_policy {
    retention_duration_seconds = var.soft_delete_days * 86400
  }

  # By the age of each object, whether or not something still points to it: a registered model's SavedModel, a
  # champion to compare with, the outputs that a cached step would hand on. docs/infra.md says what follows.
  dynamic "lifecycle_rule" {
    for_each = var.keep_days > 0 ? [var.keep_days] : []

    content {
      action {
        type = "Delete"
      }
      condition {
        age            = lifecycle_rule.value
        matches_prefix = ["runs/"]
      }
    }
  }

  lifecycle_rule {
    action {
      type = "AbortIncompleteMultipartUpload"
    }
    condition {
      age = 7
    }
  }

  depends_on = [google_project_service.this]
}
