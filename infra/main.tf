locals {
  # Images, TensorBoard and the budget's alerts need one place; buckets are in every region.
  home          = var.regions[0]
  bucket_prefix = var.bucket_prefix != "" ? var.bucket_prefix : var.project

  services = toset(concat(
    [
      "aiplatform.googleapis.com",
      "artifactregistry.googleapis.com",
      "cloudbuild.googleapis.com",
      "cloudresourcemanager.googleapis.com",
      "compute.googleapis.com",
      "iam.googleapis.com",
      "logging.googleapis.com",
      "storage.googleapis.com",
    ],
    var.private_network ? ["servicenetworking.googleapis.com"] : [],
    var.billing_account != "" ? ["billingbudgets.googleapis.com"] : [],
  ))
}

# Quotas are not here: Terraform can't grant what Google has to. The quota of TPU training
# (aiplatform.googleapis.com/custom_model_training_tpu_v5e and its like) is 0 in some regions until it is asked for:
# docs/infra.md says how.
resource "google_project_service" "this" {
  for_each = local.services

  service = each.value
  # Others in the project may use them, and an API that is on costs nothing.
  disable_on_destroy = false
}

data "google_project" "this" {
  project_id = var.project

  depends_on = [google_project_service.this]
}
