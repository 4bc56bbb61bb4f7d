terraform {
  required_version = ">= 1.5"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 6.0"
    }
  }
}

provider "google" {
  project = var.project
  region  = local.home

  # Budgets are refused to a person's own credentials unless a project answers for the request.
  user_project_override = var.billing_account != ""
  billing_project       = var.project

  default_labels = {
    managed-by = "terraform"
    part-of    = var.name
  }
}
