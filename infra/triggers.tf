# The connection itself is made by hand, since GitHub wants a click: docs/infra.md.
locals {
  connection = var.connection != "" ? split("/", var.connection) : []
  with_ci    = length(local.connection) > 0 ? { (local.connection[5]) = local.connection[3] } : {}
}

resource "google_cloudbuildv2_repository" "this" {
  for_each = local.with_ci

  name              = var.name
  location          = each.value
  parent_connection = each.key
  remote_uri        = var.repository

  lifecycle {
    precondition {
      condition     = var.repository != ""
      error_message = "connection is set, so repository must be too: https://github.com/OWNER/NAME.git."
    }
  }

  depends_on = [google_project_service.this]
}

resource "google_cloudbuild_trigger" "merge" {
  for_each = local.with_ci

  name            = "${var.name}-merge"
  location        = each.value
  description     = "Builds and pushes the images, uploads the pipeline, and submits it if asked."
  service_account = google_service_account.this["builder"].id
  filename        = "cloudbuild.yaml"

  repository_event_config {
    repository = google_cloudbuildv2_repository.this[each.key].id
    push {
      branch = var.branch
    }
  }

  substitutions = {
    _REGISTRY       = local.registry
    _KFP_REPOSITORY = local.kfp_repository
    _CONFIG         = var.config
    _SUBMIT         = tostring(var.submit)
  }
}

# Runs the pull request's own cloudbuild.pr.yaml, so as an account that may write logs and nothing else.
resource "google_cloudbuild_trigger" "pull_request" {
  for_each = local.with_ci

  name            = "${var.name}-pull-request"
  location        = each.value
  description     = "Checks a pull request; a stranger's waits for an owner's comment: /gcbrun."
  service_account = google_service_account.this["checker"].id
  filename        = "cloudbuild.pr.yaml"

  repository_event_config {
    repository = google_cloudbuildv2_repository.this[each.key].id
    pull_request {
      branch          = var.branch
      comment_control = "COMMENTS_ENABLED_FOR_EXTERNAL_CONTRIBUTORS_ONLY"
    }
  }
}
