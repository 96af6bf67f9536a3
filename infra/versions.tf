terraform {
  # Validations that look at other variables came with 1.9.
  required_version = ">= 1.9.0, < 2.0.0"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.0"
    }
  }
}

provider "aws" {
  region = var.region

  # An emulator knows no accounts.
  skip_credentials_validation = var.local_endpoint != null
  skip_metadata_api_check     = var.local_endpoint != null
  skip_requesting_account_id  = var.local_endpoint != null

  dynamic "endpoints" {
    for_each = var.local_endpoint[*]
    content {
      dynamodb = endpoints.value
      sqs      = endpoints.value
    }
  }

  default_tags {
    tags = merge({ application = "punctual", installation = var.prefix, environment = var.environment }, var.tags)
  }
}
