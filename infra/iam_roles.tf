# The roles that the rights of iam.tf belong to, and what the platform itself needs to start tasks and write logs.

data "aws_iam_policy_document" "task_trust" {
  count = local.with_services ? 1 : 0

  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = ["ecs-tasks.amazonaws.com"]
    }
    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [local.account_id]
    }
  }
}

data "aws_iam_policy_document" "operator_trust" {
  count = local.with_services ? 1 : 0

  source_policy_documents = [data.aws_iam_policy_document.task_trust[0].json]

  dynamic "statement" {
    for_each = length(var.operator_principal_arns) > 0 ? [1] : []
    content {
      actions = ["sts:AssumeRole"]
      principals {
        type        = "AWS"
        identifiers = var.operator_principal_arns
      }
    }
  }
}

data "aws_iam_policy_document" "function_trust" {
  count = local.with_services ? 1 : 0

  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = ["lambda.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "scheduler" {
  count = local.with_services ? 1 : 0

  name               = "${var.prefix}-${var.region}-scheduler"
  description        = "Schedulers of Punctual"
  assume_role_policy = data.aws_iam_policy_document.task_trust[0].json
}

resource "aws_iam_role_policy" "scheduler" {
  count = local.with_services ? 1 : 0

  name   = "adapters"
  role   = aws_iam_role.scheduler[0].id
  policy = data.aws_iam_policy_document.scheduler[0].json
}

resource "aws_iam_role" "worker" {
  count = local.with_worker_tasks ? 1 : 0

  name               = "${var.prefix}-${var.region}-worker"
  description        = "Workers of Punctual that are tasks"
  assume_role_policy = data.aws_iam_policy_document.task_trust[0].json
}

resource "aws_iam_role_policy" "worker" {
  count = local.with_worker_tasks ? 1 : 0

  name   = "adapters"
  role   = aws_iam_role.worker[0].id
  policy = data.aws_iam_policy_document.worker[0].json
}

resource "aws_iam_role" "function" {
  count = local.with_worker_function ? 1 : 0

  name               = "${var.prefix}-${var.region}-function"
  description        = "Workers of Punctual that are a function"
  assume_role_policy = data.aws_iam_policy_document.function_trust[0].json
}

resource "aws_iam_role_policy" "function" {
  count = local.with_worker_function ? 1 : 0

  name   = "adapters"
  role   = aws_iam_role.function[0].id
  policy = data.aws_iam_policy_document.function[0].json
}

resource "aws_iam_role" "api" {
  count = local.with_api ? 1 : 0

  name               = "${var.prefix}-${var.region}-api"
  description        = "The Jobs API of Punctual"
  assume_role_policy = data.aws_iam_policy_document.task_trust[0].json
}

resource "aws_iam_role_policy" "api" {
  count = local.with_api ? 1 : 0

  name   = "adapters"
  role   = aws_iam_role.api[0].id
  policy = data.aws_iam_policy_document.api[0].json
}

resource "aws_iam_role" "operator" {
  count = local.with_services ? 1 : 0

  name               = "${var.prefix}-${var.region}-operator"
  description        = "Operators of Punctual: commands on the store"
  assume_role_policy = data.aws_iam_policy_document.operator_trust[0].json
}

resource "aws_iam_role_policy" "operator" {
  count = local.with_services ? 1 : 0

  name   = "adapters"
  role   = aws_iam_role.operator[0].id
  policy = data.aws_iam_policy_document.operator[0].json
}

# All that use tables and queues use their key, by way of DynamoDB and SQS alone.
data "aws_iam_policy_document" "key" {
  count = local.with_services && var.kms_key_arn != null ? 1 : 0

  statement {
    sid = "Key"
    actions = [
      "kms:Decrypt",
      "kms:DescribeKey",
      "kms:Encrypt",
      "kms:GenerateDataKey",
      "kms:GenerateDataKeyWithoutPlaintext",
      "kms:ReEncryptFrom",
      "kms:ReEncryptTo",
    ]
    resources = [var.kms_key_arn]
    condition {
      test     = "StringEquals"
      variable = "kms:ViaService"
      values   = ["dynamodb.${var.region}.amazonaws.com", "sqs.${var.region}.amazonaws.com"]
    }
  }
}

resource "aws_iam_role_policy" "key" {
  for_each = var.kms_key_arn == null ? {} : merge(
    { for role in aws_iam_role.scheduler : "scheduler" => role.id },
    { for role in aws_iam_role.worker : "worker" => role.id },
    { for role in aws_iam_role.function : "function" => role.id },
    { for role in aws_iam_role.api : "api" => role.id },
    { for role in aws_iam_role.operator : "operator" => role.id },
  )

  name   = "key"
  role   = each.value
  policy = data.aws_iam_policy_document.key[0].json
}

# The function writes its log by its own role; it is no program's call.
data "aws_iam_policy_document" "function_log" {
  count = local.with_worker_function ? 1 : 0

  statement {
    sid       = "Log"
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["${aws_cloudwatch_log_group.service["function"].arn}:log-stream:*"]
  }
}

resource "aws_iam_role_policy" "function_log" {
  count = local.with_worker_function ? 1 : 0

  name   = "log"
  role   = aws_iam_role.function[0].id
  policy = data.aws_iam_policy_document.function_log[0].json
}

# What ECS needs to start a task: the image, its log, its secrets.
data "aws_iam_policy_document" "execution" {
  for_each = local.task_services

  statement {
    sid       = "Log"
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["${aws_cloudwatch_log_group.service[each.key].arn}:log-stream:${each.key}/*"]
  }
  dynamic "statement" {
    for_each = local.ecr[each.key] == null ? [] : [local.ecr[each.key]]
    content {
      sid       = "Image"
      actions   = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
      resources = ["arn:${local.partition}:ecr:${statement.value[1]}:${statement.value[0]}:repository/${statement.value[2]}"]
    }
  }
  dynamic "statement" {
    for_each = local.ecr[each.key] == null ? [] : [1]
    content {
      # A token is for a whole registry: AWS knows no resource for it.
      sid       = "RegistryToken"
      actions   = ["ecr:GetAuthorizationToken"]
      resources = ["*"]
    }
  }
  dynamic "statement" {
    for_each = each.key == "worker" && length(local.secrets) > 0 ? [1] : []
    content {
      sid       = "Secrets"
      actions   = ["secretsmanager:GetSecretValue"]
      resources = values(local.secrets)
    }
  }
  dynamic "statement" {
    for_each = each.key == "worker" && length(local.secrets) > 0 ? var.secrets_kms_key_arn[*] : []
    content {
      sid       = "SecretsKey"
      actions   = ["kms:Decrypt"]
      resources = [statement.value]
      condition {
        test     = "StringEquals"
        variable = "kms:ViaService"
        values   = ["secretsmanager.${var.region}.amazonaws.com"]
      }
    }
  }
}

resource "aws_iam_role" "execution" {
  for_each = local.task_services

  name               = "${var.prefix}-${var.region}-${each.key}-start"
  description        = "ECS, to start a task of Punctual: ${each.key}"
  assume_role_policy = data.aws_iam_policy_document.task_trust[0].json
}

resource "aws_iam_role_policy" "execution" {
  for_each = local.task_services

  name   = "start"
  role   = aws_iam_role.execution[each.key].id
  policy = data.aws_iam_policy_document.execution[each.key].json
}
