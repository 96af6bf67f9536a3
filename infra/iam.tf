# Who may do what. Each service has a role of its own, with one statement for each adapter that it uses: its Sid is the name of the file in
# core/src/aws, with a word behind it where a file needs two (`QueueDeadLetters`). What a service never asks its adapter for is not
# granted. There is no `*`, but for the registry's token, which has no resource, and for the names of log streams, which the platform makes up.
#
# Keys of items are part of it (`dynamodb:LeadingKeys`): who holds a worker's role changes no API key and takes no shard. A scan names no key, so the
# condition does not concern it.

data "aws_caller_identity" "this" {
  count = local.with_services ? 1 : 0
}

data "aws_partition" "this" {
  count = local.with_services ? 1 : 0
}

locals {
  account_id = one(data.aws_caller_identity.this[*].account_id)
  partition  = one(data.aws_partition.this[*].partition)
  queue_arns = [for priority in ["urgent", "normal", "bulk"] : module.priority_queue[priority].arn]

  # Repositories of images that are in ECR: account, region and name.
  ecr = {
    for service, image in local.images : service => try(regex("^([0-9]{12})\\.dkr\\.ecr\\.([a-z0-9-]+)\\.amazonaws\\.com(?:\\.cn)?/([a-z0-9._/-]+)[:@]", image), null)
  }
}

data "aws_iam_policy_document" "scheduler" {
  count = local.with_services ? 1 : 0

  statement {
    sid = "Jobs"
    actions = [
      "dynamodb:BatchGetItem",
      "dynamodb:PartiQLUpdate",
      "dynamodb:Scan",
      "dynamodb:UpdateItem",
    ]
    resources = [aws_dynamodb_table.jobs.arn]
  }
  statement {
    sid       = "Due"
    actions   = ["dynamodb:Query"]
    resources = ["${aws_dynamodb_table.jobs.arn}/index/due"]
  }
  statement {
    sid       = "Runs"
    actions   = ["dynamodb:GetItem"]
    resources = [aws_dynamodb_table.runs.arn]
  }
  statement {
    sid = "RunWrites"
    actions = [
      "dynamodb:PartiQLInsert",
      "dynamodb:PartiQLUpdate",
      "dynamodb:PutItem",
    ]
    resources = [aws_dynamodb_table.runs.arn]
  }
  statement {
    sid       = "History"
    actions   = ["dynamodb:Scan"]
    resources = ["${aws_dynamodb_table.runs.arn}/index/attention"]
  }
  statement {
    sid = "Leases"
    actions = [
      "dynamodb:DeleteItem",
      "dynamodb:Scan",
      "dynamodb:UpdateItem",
    ]
    resources = [aws_dynamodb_table.leases.arn]
    condition {
      test     = "ForAllValues:StringLike"
      variable = "dynamodb:LeadingKeys"
      values   = ["shard/*", "copy/*", "zones/*"]
    }
  }
  statement {
    sid       = "Control"
    actions   = ["dynamodb:GetItem"]
    resources = [aws_dynamodb_table.control.arn]
    condition {
      test     = "ForAllValues:StringEquals"
      variable = "dynamodb:LeadingKeys"
      values   = ["shards"]
    }
  }
  statement {
    sid = "Queue"
    actions = [
      "sqs:GetQueueAttributes",
      "sqs:GetQueueUrl",
      "sqs:SendMessage",
    ]
    resources = local.queue_arns
  }
  statement {
    sid       = "QueueDeadLetters"
    actions   = ["sqs:GetQueueUrl"]
    resources = [aws_sqs_queue.dead_letters.arn]
  }
}

data "aws_iam_policy_document" "worker" {
  count = local.with_services ? 1 : 0

  statement {
    sid = "Jobs"
    actions = [
      "dynamodb:BatchGetItem",
      "dynamodb:PutItem",
    ]
    resources = [aws_dynamodb_table.jobs.arn]
  }
  statement {
    sid       = "Versions"
    actions   = ["dynamodb:PutItem"]
    resources = [aws_dynamodb_table.control.arn]
    condition {
      test     = "ForAllValues:StringLike"
      variable = "dynamodb:LeadingKeys"
      values   = ["version/*"]
    }
  }
  statement {
    sid       = "Runs"
    actions   = ["dynamodb:GetItem"]
    resources = [aws_dynamodb_table.runs.arn]
  }
  statement {
    sid = "RunWrites"
    actions = [
      "dynamodb:PartiQLInsert",
      "dynamodb:PartiQLUpdate",
      "dynamodb:PutItem",
    ]
    resources = [aws_dynamodb_table.runs.arn]
  }
  statement {
    sid = "Shares"
    actions = [
      "dynamodb:GetItem",
      "dynamodb:PutItem",
      "dynamodb:UpdateItem",
    ]
    resources = [aws_dynamodb_table.leases.arn]
    condition {
      test     = "ForAllValues:StringLike"
      variable = "dynamodb:LeadingKeys"
      values   = ["rate/*"]
    }
  }
  statement {
    sid = "Reports"
    actions = [
      "dynamodb:DeleteItem",
      "dynamodb:PutItem",
      "dynamodb:Scan",
    ]
    resources = [aws_dynamodb_table.leases.arn]
    condition {
      test     = "ForAllValues:StringLike"
      variable = "dynamodb:LeadingKeys"
      values   = ["worker/*"]
    }
  }
  statement {
    sid       = "Control"
    actions   = ["dynamodb:GetItem"]
    resources = [aws_dynamodb_table.control.arn]
    condition {
      test     = "ForAllValues:StringEquals"
      variable = "dynamodb:LeadingKeys"
      values   = ["shards", "steering"]
    }
  }
  statement {
    sid = "Queue"
    actions = [
      "sqs:ChangeMessageVisibility",
      "sqs:DeleteMessage",
      "sqs:GetQueueAttributes",
      "sqs:GetQueueUrl",
      "sqs:ReceiveMessage",
      "sqs:SendMessage",
    ]
    resources = local.queue_arns
  }
  statement {
    sid = "QueueDeadLetters"
    actions = [
      "sqs:GetQueueUrl",
      "sqs:SendMessage",
    ]
    resources = [aws_sqs_queue.dead_letters.arn]
  }
  # worker/src/deliver/queue.rs
  dynamic "statement" {
    for_each = length(var.receiver_queue_arns) > 0 ? [1] : []
    content {
      sid       = "DeliverQueue"
      actions   = ["sqs:SendMessage"]
      resources = var.receiver_queue_arns
    }
  }
}

# The function keeps no shares and reports nothing; Lambda receives and deletes for it, by its role.
data "aws_iam_policy_document" "function" {
  count = local.with_services ? 1 : 0

  statement {
    sid = "Jobs"
    actions = [
      "dynamodb:BatchGetItem",
      "dynamodb:PutItem",
    ]
    resources = [aws_dynamodb_table.jobs.arn]
  }
  statement {
    sid       = "Versions"
    actions   = ["dynamodb:PutItem"]
    resources = [aws_dynamodb_table.control.arn]
    condition {
      test     = "ForAllValues:StringLike"
      variable = "dynamodb:LeadingKeys"
      values   = ["version/*"]
    }
  }
  statement {
    sid       = "Runs"
    actions   = ["dynamodb:GetItem"]
    resources = [aws_dynamodb_table.runs.arn]
  }
  statement {
    sid = "RunWrites"
    actions = [
      "dynamodb:PartiQLInsert",
      "dynamodb:PartiQLUpdate",
      "dynamodb:PutItem",
    ]
    resources = [aws_dynamodb_table.runs.arn]
  }
  statement {
    sid       = "Control"
    actions   = ["dynamodb:GetItem"]
    resources = [aws_dynamodb_table.control.arn]
    condition {
      test     = "ForAllValues:StringEquals"
      variable = "dynamodb:LeadingKeys"
      values   = ["shards", "steering"]
    }
  }
  statement {
    sid = "Queue"
    actions = [
      "sqs:ChangeMessageVisibility",
      "sqs:DeleteMessage",
      "sqs:GetQueueAttributes",
      "sqs:GetQueueUrl",
      "sqs:ReceiveMessage",
      "sqs:SendMessage",
    ]
    resources = local.queue_arns
  }
  statement {
    sid = "QueueDeadLetters"
    actions = [
      "sqs:GetQueueUrl",
      "sqs:SendMessage",
    ]
    resources = [aws_sqs_queue.dead_letters.arn]
  }
  # worker/src/deliver/queue.rs
  dynamic "statement" {
    for_each = length(var.receiver_queue_arns) > 0 ? [1] : []
    content {
      sid       = "DeliverQueue"
      actions   = ["sqs:SendMessage"]
      resources = var.receiver_queue_arns
    }
  }
}

data "aws_iam_policy_document" "api" {
  count = local.with_services ? 1 : 0

  statement {
    sid = "Jobs"
    actions = [
      "dynamodb:BatchGetItem",
      "dynamodb:PartiQLUpdate",
      "dynamodb:PutItem",
      "dynamodb:Query",
    ]
    resources = [
      aws_dynamodb_table.jobs.arn,
      "${aws_dynamodb_table.jobs.arn}/index/tenant",
    ]
  }
  statement {
    sid       = "Due"
    actions   = ["dynamodb:Query"]
    resources = ["${aws_dynamodb_table.jobs.arn}/index/due"]
  }
  statement {
    sid = "Versions"
    actions = [
      "dynamodb:BatchGetItem",
      "dynamodb:BatchWriteItem",
      "dynamodb:PutItem",
    ]
    resources = [aws_dynamodb_table.control.arn]
    condition {
      test     = "ForAllValues:StringLike"
      variable = "dynamodb:LeadingKeys"
      values   = ["version/*"]
    }
  }
  statement {
    sid       = "Runs"
    actions   = ["dynamodb:GetItem"]
    resources = [aws_dynamodb_table.runs.arn]
  }
  statement {
    sid = "History"
    actions = [
      "dynamodb:BatchGetItem",
      "dynamodb:GetItem",
      "dynamodb:Query",
      "dynamodb:UpdateItem",
    ]
    resources = [
      aws_dynamodb_table.runs.arn,
      "${aws_dynamodb_table.runs.arn}/index/attention",
    ]
  }
  statement {
    sid       = "Leases"
    actions   = ["dynamodb:Scan"]
    resources = [aws_dynamodb_table.leases.arn]
  }
  statement {
    sid       = "Shares"
    actions   = ["dynamodb:GetItem"]
    resources = [aws_dynamodb_table.leases.arn]
    condition {
      test     = "ForAllValues:StringLike"
      variable = "dynamodb:LeadingKeys"
      values   = ["rate/*"]
    }
  }
  statement {
    sid       = "Reports"
    actions   = ["dynamodb:Scan"]
    resources = [aws_dynamodb_table.leases.arn]
  }
  statement {
    sid       = "Control"
    actions   = ["dynamodb:GetItem"]
    resources = [aws_dynamodb_table.control.arn]
    condition {
      test     = "ForAllValues:StringEquals"
      variable = "dynamodb:LeadingKeys"
      values   = ["shards", "steering", "api-keys"]
    }
  }
  # Neither keys nor shard counts: those are the operator's.
  statement {
    sid       = "ControlWrites"
    actions   = ["dynamodb:PutItem"]
    resources = [aws_dynamodb_table.control.arn]
    condition {
      test     = "ForAllValues:StringLike"
      variable = "dynamodb:LeadingKeys"
      values   = ["steering", "create/*", "run/*"]
    }
  }
  statement {
    sid = "Queue"
    actions = [
      "sqs:GetQueueAttributes",
      "sqs:GetQueueUrl",
      "sqs:SendMessage",
    ]
    resources = local.queue_arns
  }
}

# What the API does, for commands ask it within themselves, and beyond that the store's own machinery: setup, keys, shards, cursors.
data "aws_iam_policy_document" "operator" {
  count = local.with_services ? 1 : 0

  statement {
    sid = "Jobs"
    actions = [
      "dynamodb:BatchGetItem",
      "dynamodb:PartiQLUpdate",
      "dynamodb:PutItem",
      "dynamodb:Query",
    ]
    resources = [
      aws_dynamodb_table.jobs.arn,
      "${aws_dynamodb_table.jobs.arn}/index/tenant",
    ]
  }
  statement {
    sid       = "Due"
    actions   = ["dynamodb:Query"]
    resources = ["${aws_dynamodb_table.jobs.arn}/index/due"]
  }
  statement {
    sid = "Versions"
    actions = [
      "dynamodb:BatchGetItem",
      "dynamodb:BatchWriteItem",
      "dynamodb:PutItem",
    ]
    resources = [aws_dynamodb_table.control.arn]
    condition {
      test     = "ForAllValues:StringLike"
      variable = "dynamodb:LeadingKeys"
      values   = ["version/*"]
    }
  }
  statement {
    sid       = "Runs"
    actions   = ["dynamodb:GetItem"]
    resources = [aws_dynamodb_table.runs.arn]
  }
  statement {
    sid = "History"
    actions = [
      "dynamodb:BatchGetItem",
      "dynamodb:GetItem",
      "dynamodb:Query",
      "dynamodb:UpdateItem",
    ]
    resources = [
      aws_dynamodb_table.runs.arn,
      "${aws_dynamodb_table.runs.arn}/index/attention",
    ]
  }
  statement {
    sid = "Leases"
    actions = [
      "dynamodb:PutItem",
      "dynamodb:Scan",
      "dynamodb:UpdateItem",
    ]
    resources = [aws_dynamodb_table.leases.arn]
    condition {
      test     = "ForAllValues:StringLike"
      variable = "dynamodb:LeadingKeys"
      values   = ["shard/*"]
    }
  }
  statement {
    sid       = "Shares"
    actions   = ["dynamodb:GetItem"]
    resources = [aws_dynamodb_table.leases.arn]
    condition {
      test     = "ForAllValues:StringLike"
      variable = "dynamodb:LeadingKeys"
      values   = ["rate/*"]
    }
  }
  statement {
    sid       = "Reports"
    actions   = ["dynamodb:Scan"]
    resources = [aws_dynamodb_table.leases.arn]
  }
  statement {
    sid = "Control"
    actions = [
      "dynamodb:GetItem",
      "dynamodb:PutItem",
    ]
    resources = [aws_dynamodb_table.control.arn]
  }
  statement {
    sid = "Queue"
    actions = [
      "sqs:GetQueueAttributes",
      "sqs:GetQueueUrl",
      "sqs:SendMessage",
    ]
    resources = local.queue_arns
  }
  # `setup` asks for each table anew, and is told that it is there. It makes none of these while this code keeps them.
  statement {
    sid = "Schema"
    actions = [
      "dynamodb:CreateTable",
      "dynamodb:DescribeTable",
      "dynamodb:DescribeTimeToLive",
      "dynamodb:UpdateTimeToLive",
    ]
    resources = [
      aws_dynamodb_table.jobs.arn,
      aws_dynamodb_table.runs.arn,
      aws_dynamodb_table.leases.arn,
      aws_dynamodb_table.control.arn,
    ]
  }
  statement {
    sid = "SchemaQueues"
    actions = [
      "sqs:CreateQueue",
      "sqs:GetQueueAttributes",
      "sqs:GetQueueUrl",
    ]
    resources = concat(local.queue_arns, [aws_sqs_queue.dead_letters.arn])
  }
}
