variable "project" {
  type        = string
  description = "Id of an existing Google Cloud project with billing, in which everything is made."

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project))
    error_message = "project must be a project id: 6 to 30 lower-case letters, digits and dashes, a letter first; see `gcloud projects list`."
  }
}

variable "name" {
  type        = string
  default     = "tpu-pipelines"
  description = "What accounts, repositories and triggers are called; another name makes another set in the same project."

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,19}[a-z0-9]$", var.name))
    error_message = "name must have 2 to 21 lower-case letters, digits and dashes, a letter first: account ids are made of it, of 30 at most."
  }
}

variable "regions" {
  type        = list(string)
  default     = ["us-central1"]
  description = "Regions to train in, in order of preference; each gets a bucket, the first also the images and TensorBoard."

  # Where Vertex AI trains TensorFlow on a TPU: pipelines/machines.py, with which a test compares this list.
  validation {
    condition = length(var.regions) > 0 && length(distinct(var.regions)) == length(var.regions) && alltrue([
      for region in var.regions : contains(
        ["asia-east1", "europe-west4", "us-central1", "us-east1", "us-west1", "us-west4"], region
      )
    ])
    error_message = "regions must be some of us-central1, us-east1, us-west1 and us-west4 (v5e), us-central1, europe-west4 and asia-east1 (v2), us-central1 and europe-west4 (v3), each once."
  }
}

variable "bucket_prefix" {
  type        = string
  default     = ""
  description = "Buckets are called PREFIX-REGION, a name that nobody else in the world may have; empty: the project's id."

  validation {
    condition     = can(regex("^([a-z0-9][a-z0-9-]{1,47})?$", var.bucket_prefix))
    error_message = "bucket_prefix must have 2 to 48 lower-case letters, digits and dashes, a letter or digit first, or be empty."
  }
}

variable "keep_days" {
  type        = number
  default     = 90
  description = "Days after which what a run wrote is deleted, checkpoints and exported models too; 0 keeps it for good."

  validation {
    condition     = var.keep_days >= 0 && floor(var.keep_days) == var.keep_days
    error_message = "keep_days must be a whole number of days, or 0 to keep all."
  }
}

variable "soft_delete_days" {
  type        = number
  default     = 0
  description = "Days for which deleted objects can be had back, and are paid for; training deletes old checkpoints all the time."

  validation {
    condition     = var.soft_delete_days == 0 || (var.soft_delete_days >= 7 && var.soft_delete_days <= 90)
    error_message = "soft_delete_days must be 0 or 7 to 90: Cloud Storage allows nothing else."
  }
}

variable "force_destroy" {
  type        = bool
  default     = false
  description = "Let `terraform destroy` delete buckets with all that is in them. It must be applied before it counts."
}

variable "keep_images_days" {
  type        = number
  default     = 365
  description = "Days after which an image is deleted, unless it is one of the 10 newest of its name."

  validation {
    condition     = var.keep_images_days >= 1 && floor(var.keep_images_days) == var.keep_images_days
    error_message = "keep_images_days must be a whole number of days, 1 or more."
  }
}

variable "service_agents" {
  type        = bool
  default     = false
  description = "Let Vertex AI's service agents read the images. They exist after the project's first job, not before."
}

variable "connection" {
  type        = string
  default     = ""
  description = "Cloud Build's connection to GitHub, made by hand: projects/P/locations/REGION/connections/NAME; empty: no triggers."

  validation {
    condition     = can(regex("^(projects/[^/]+/locations/[^/]+/connections/[^/]+)?$", var.connection))
    error_message = "connection must be projects/P/locations/REGION/connections/NAME, or empty; see `gcloud builds connections list`."
  }
}

variable "repository" {
  type        = string
  default     = ""
  description = "The repository on GitHub that the triggers watch: https://github.com/OWNER/NAME.git."

  validation {
    condition     = can(regex("^(https://[^/ ]+/[^/ ]+/[^/ ]+\\.git)?$", var.repository))
    error_message = "repository must be its HTTPS address with .git at the end, such as https://github.com/OWNER/NAME.git."
  }
}

variable "branch" {
  type        = string
  default     = "^main$"
  description = "Regular expression of the branches whose pushes are built, and into which pull requests are checked."

  validation {
    condition     = length(var.branch) > 0 && can(regexall(var.branch, ""))
    error_message = "branch must be a regular expression, such as ^main$."
  }
}

variable "config" {
  type        = string
  default     = "configs/vertex.example.yaml"
  description = "The run's YAML file, in the repository, that a merge compiles, and submits if submit says so."

  validation {
    condition     = can(regex("^[A-Za-z0-9_][A-Za-z0-9_./-]*\\.ya?ml$", var.config))
    error_message = "config must be the path of a YAML file in the repository, such as configs/vertex.example.yaml."
  }
}

variable "submit" {
  type        = bool
  default     = false
  description = "Let each merge also start the run, which costs what its TPU costs."
}

variable "tensorboard" {
  type        = bool
  default     = false
  description = "Make a Vertex AI TensorBoard that shows training live. It costs by what is stored; it allows one region only."
}

variable "private_network" {
  type        = bool
  default     = false
  description = "Make a network that is peered with Google's services, for jobs that must reach machines in it."
}

variable "peering_prefix_length" {
  type        = number
  default     = 16
  description = "Size of the range of addresses that the peering takes: 16 for many jobs at once, up to 18 for few."

  validation {
    condition     = contains([16, 17, 18], var.peering_prefix_length)
    error_message = "peering_prefix_length must be 16, 17 or 18: what Vertex AI asks for."
  }
}

variable "billing_account" {
  type        = string
  default     = ""
  description = "Billing account of the project, for a budget with alerts: XXXXXX-XXXXXX-XXXXXX; empty: no budget."

  validation {
    condition     = can(regex("^([0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6})?$", var.billing_account))
    error_message = "billing_account must be such as 0123AB-4567CD-89EF01, or empty; see `gcloud billing accounts list`."
  }
}

variable "budget_amount" {
  type        = number
  default     = 500
  description = "The month's budget in the billing account's currency. Alerts are sent at 50, 90 and 100 %; nothing is stopped."

  validation {
    condition     = var.budget_amount >= 1 && floor(var.budget_amount) == var.budget_amount
    error_message = "budget_amount must be a whole number, 1 or more."
  }
}
