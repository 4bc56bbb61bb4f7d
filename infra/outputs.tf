locals {
  registry       = "${local.home}-docker.pkg.dev/${var.project}/${google_artifact_registry_repository.images.repository_id}"
  kfp_repository = "https://${local.home}-kfp.pkg.dev/${var.project}/${google_artifact_registry_repository.pipelines.repository_id}"
}

output "registry" {
  description = "Where the images go: HOST/PROJECT/REPOSITORY."
  value       = local.registry
}

output "kfp_repository" {
  description = "Where compiled pipelines go."
  value       = local.kfp_repository
}

output "vertex" {
  description = "The `vertex:` section of a run's YAML file: `terraform output -raw vertex`."
  value = yamlencode({
    vertex = merge(
      {
        project                 = var.project
        regions                 = var.regions
        pipeline_root           = "gs://${local.bucket_prefix}-{region}/runs"
        service_account         = google_service_account.this["pipeline"].email
        trainer_service_account = google_service_account.this["trainer"].email
      },
      var.tensorboard ? { tensorboard = google_vertex_ai_tensorboard.this[0].name } : {},
      var.private_network ? {
        network = "projects/${data.google_project.this.number}/global/networks/${google_compute_network.this[0].name}"
      } : {},
    )
  })
}
