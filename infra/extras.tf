# What is off unless asked for.

# Charged by what is stored in it, and not by the hour: docs/infra.md.
resource "google_vertex_ai_tensorboard" "this" {
  count = var.tensorboard ? 1 : 0

  display_name = var.name
  region       = local.home

  lifecycle {
    precondition {
      condition     = length(var.regions) == 1
      error_message = "tensorboard needs one region, regions has several: a job writes to a TensorBoard of its own region only."
    }
  }

  depends_on = [google_project_service.this]
}

resource "google_compute_network" "this" {
  count = var.private_network ? 1 : 0

  name                    = var.name
  auto_create_subnetworks = false

  depends_on = [google_project_service.this]
}

# Jobs get their addresses from this range, so it bounds how many can run at once.
resource "google_compute_global_address" "peering" {
  count = var.private_network ? 1 : 0

  name          = "${var.name}-peering"
  purpose       = "VPC_PEERING"
  address_type  = "INTERNAL"
  prefix_length = var.peering_prefix_length
  network       = google_compute_network.this[0].id
}

resource "google_service_networking_connection" "this" {
  count = var.private_network ? 1 : 0

  network                 = google_compute_network.this[0].id
  service                 = "servicenetworking.googleapis.com"
  reserved_peering_ranges = [google_compute_global_address.peering[0].name]
}

# Tells the billing account's administrators; it stops nothing.
resource "google_billing_budget" "this" {
  count = var.billing_account != "" ? 1 : 0

  billing_account = var.billing_account
  display_name    = "${var.name} in ${var.project}"

  budget_filter {
    projects = ["projects/${data.google_project.this.number}"]
  }

  amount {
    specified_amount {
      units = tostring(var.budget_amount)
    }
  }

  dynamic "threshold_rules" {
    for_each = [0.5, 0.9, 1.0]

    content {
      threshold_percent = threshold_rules.value
    }
  }
}
