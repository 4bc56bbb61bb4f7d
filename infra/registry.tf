# Tags may move: the build's cache stands under a fixed one. Compiled pipelines name images by digest.
resource "google_artifact_registry_repository" "images" {
  location      = local.home
  repository_id = var.name
  format        = "DOCKER"
  description   = "Images of the pipeline's steps, of training on a TPU, and of serving."

  # What Artifact Registry matches with both a KEEP and a DELETE policy, it keeps.
  cleanup_policy_dry_run = false
  cleanup_policies {
    id     = "keep-newest"
    action = "KEEP"
    most_recent_versions {
      keep_count = 10
    }
  }
  cleanup_policies {
    id     = "delete-old"
    action = "DELETE"
    condition {
      tag_state  = "ANY"
      older_than = "${var.keep_images_days * 86400}s"
    }
  }

  depends_on = [google_project_service.this]
}

resource "google_artifact_registry_repository" "pipelines" {
  location      = local.home
  repository_id = "${var.name}-kfp"
  format        = "KFP"
  description   = "Compiled pipelines, some kB each."

  depends_on = [google_project_service.this]
}
