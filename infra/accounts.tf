# Who may do what: docs/infra.md has the same as a table with the reasons, and a test holds the two together.
locals {
  accounts = {
    builder  = "Builds and pushes images after a merge, uploads and submits the pipeline."
    checker  = "Runs the checks of pull requests, whose code nobody has read yet."
    pipeline = "Runs the pipeline's steps and starts training (vertex.service_account)."
    trainer  = "Runs training on the TPU."
  }

  project_roles = {
    builder  = ["roles/aiplatform.user", "roles/logging.logWriter"]
    checker  = ["roles/logging.logWriter"]
    pipeline = ["roles/aiplatform.user", "roles/logging.logWriter"]
    trainer  = concat(["roles/logging.logWriter"], var.tensorboard ? ["roles/aiplatform.user"] : [])
  }

  # legacyBucketReader is the least role with storage.buckets.get, for which TensorFlow and Google's SDK ask.
  bucket_roles = {
    builder  = ["roles/storage.legacyBucketReader", "roles/storage.objectViewer"]
    pipeline = ["roles/storage.legacyBucketReader", "roles/storage.objectUser"]
    trainer  = ["roles/storage.legacyBucketReader", "roles/storage.objectUser"]
  }

  image_roles = {
    builder  = ["roles/artifactregistry.writer"]
    pipeline = ["roles/artifactregistry.reader"]
    trainer  = ["roles/artifactregistry.reader"]
  }

  pipeline_roles = {
    builder = ["roles/artifactregistry.writer"]
  }

  # As whom an account may start jobs.
  acts_as = {
    builder  = ["pipeline"]
    pipeline = ["pipeline", "trainer"]
  }

  service_agents = ["gcp-sa-aiplatform", "gcp-sa-aiplatform-cc"]
}

resource "google_service_account" "this" {
  for_each = local.accounts

  account_id   = "${var.name}-${each.key}"
  display_name = "${var.name} ${each.key}"
  description  = each.value

  depends_on = [google_project_service.this]
}

resource "google_project_iam_member" "this" {
  for_each = merge([for account, roles in local.project_roles : {
    for role in roles : "${account} ${role}" => { account = account, role = role }
  }]...)

  project = var.project
  role    = each.value.role
  member  = google_service_account.this[each.value.account].member
}

resource "google_storage_bucket_iam_member" "this" {
  for_each = merge(flatten([for account, roles in local.bucket_roles : [for region in var.regions : {
    for role in roles : "${account} ${role} ${region}" => { account = account, role = role, region = region }
  }]])...)

  bucket = google_storage_bucket.runs[each.value.region].name
  role   = each.value.role
  member = google_service_account.this[each.value.account].member
}

resource "google_artifact_registry_repository_iam_member" "images" {
  for_each = merge([for account, roles in local.image_roles : {
    for role in roles : "${account} ${role}" => { account = account, role = role }
  }]...)

  location   = google_artifact_registry_repository.images.location
  repository = google_artifact_registry_repository.images.name
  role       = each.value.role
  member     = google_service_account.this[each.value.account].member
}

resource "google_artifact_registry_repository_iam_member" "pipelines" {
  for_each = merge([for account, roles in local.pipeline_roles : {
    for role in roles : "${account} ${role}" => { account = account, role = role }
  }]...)

  location   = google_artifact_registry_repository.pipelines.location
  repository = google_artifact_registry_repository.pipelines.name
  role       = each.value.role
  member     = google_service_account.this[each.value.account].member
}

resource "google_service_account_iam_member" "acts_as" {
  for_each = merge([for account, others in local.acts_as : {
    for other in others : "${account} ${other}" => { account = account, other = other }
  }]...)

  service_account_id = google_service_account.this[each.value.other].name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.this[each.value.account].member
}

# Google's own accounts, which pull the images of jobs. Google makes them with the project's first job, and IAM refuses
# a member that is not there.
resource "google_artifact_registry_repository_iam_member" "service_agents" {
  for_each = toset(var.service_agents ? local.service_agents : [])

  location   = google_artifact_registry_repository.images.location
  repository = google_artifact_registry_repository.images.name
  role       = "roles/artifactregistry.reader"
  member     = "serviceAccount:service-${data.google_project.this.number}@${each.value}.iam.gserviceaccount.com"
}
