# The four tables. Keys, indexes and the TTL attribute are those of core/src/aws/schema.rs.

locals {
  is_prod = var.environment == "prod"
}

resource "aws_dynamodb_table" "jobs" {
  # checkov:skip=CKV_AWS_119:the key is the adopter's choice, kms_key_arn; without it AWS's own KMS key is used
  name                        = "${var.prefix}-jobs"
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "job_key"
  deletion_protection_enabled = local.is_prod

  attribute {
    name = "job_key"
    type = "S"
  }
  attribute {
    name = "due_bucket"
    type = "S"
  }
  attribute {
    name = "next_due_at"
    type = "N"
  }
  attribute {
    name = "tenant"
    type = "S"
  }

  global_secondary_index {
    name            = "due"
    hash_key        = "due_bucket"
    range_key       = "next_due_at"
    projection_type = "KEYS_ONLY"

    dynamic "warm_throughput" {
      for_each = var.warm_throughput.due[*]
      content {
        read_units_per_second  = warm_throughput.value.reads_per_s
        write_units_per_second = warm_throughput.value.writes_per_s
      }
    }
  }
  global_secondary_index {
    name            = "tenant"
    hash_key        = "tenant"
    range_key       = "job_key"
    projection_type = "KEYS_ONLY"
  }

  ttl {
    attribute_name = "expires_at"
    enabled        = true
  }
  point_in_time_recovery {
    enabled = true
  }
  server_side_encryption {
    enabled     = true
    kms_key_arn = var.kms_key_arn
  }
  dynamic "warm_throughput" {
    for_each = var.warm_throughput.jobs[*]
    content {
      read_units_per_second  = warm_throughput.value.reads_per_s
      write_units_per_second = warm_throughput.value.writes_per_s
    }
  }
}

resource "aws_dynamodb_table" "runs" {
  # checkov:skip=CKV_AWS_119:the key is the adopter's choice, kms_key_arn; without it AWS's own KMS key is used
  name                        = "${var.prefix}-runs"
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "job_key"
  range_key                   = "run_key"
  deletion_protection_enabled = local.is_prod

  attribute {
    name = "job_key"
    type = "S"
  }
  attribute {
    name = "run_key"
    type = "S"
  }
  attribute {
    name = "attention_tenant"
    type = "S"
  }
  attribute {
    name = "completed_at_ms"
    type = "N"
  }

  global_secondary_index {
    name            = "attention"
    hash_key        = "attention_tenant"
    range_key       = "completed_at_ms"
    projection_type = "KEYS_ONLY"
  }

  ttl {
    attribute_name = "expires_at"
    enabled        = true
  }
  point_in_time_recovery {
    enabled = true
  }
  server_side_encryption {
    enabled     = true
    kms_key_arn = var.kms_key_arn
  }
  dynamic "warm_throughput" {
    for_each = var.warm_throughput.runs[*]
    content {
      read_units_per_second  = warm_throughput.value.reads_per_s
      write_units_per_second = warm_throughput.value.writes_per_s
    }
  }
}

resource "aws_dynamodb_table" "leases" {
  # checkov:skip=CKV_AWS_119:the key is the adopter's choice, kms_key_arn; without it AWS's own KMS key is used
  name                        = "${var.prefix}-leases"
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "lease_id"
  deletion_protection_enabled = local.is_prod

  attribute {
    name = "lease_id"
    type = "S"
  }

  point_in_time_recovery {
    enabled = true
  }
  server_side_encryption {
    enabled     = true
    kms_key_arn = var.kms_key_arn
  }
}

resource "aws_dynamodb_table" "control" {
  # checkov:skip=CKV_AWS_119:the key is the adopter's choice, kms_key_arn; without it AWS's own KMS key is used
  name                        = "${var.prefix}-control"
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "control_id"
  deletion_protection_enabled = local.is_prod

  attribute {
    name = "control_id"
    type = "S"
  }

  ttl {
    attribute_name = "expires_at"
    enabled        = true
  }
  point_in_time_recovery {
    enabled = true
  }
  server_side_encryption {
    enabled     = true
    kms_key_arn = var.kms_key_arn
  }
}
