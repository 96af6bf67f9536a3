# Workers as a function: one for all queues, with an event source for each, whose concurrency is in the ratio of the weights.

locals {
  with_worker_function = local.with_services && local.with_function

  # 6/3/1 of ten, as core/src/priority.rs has it.
  function_concurrency = {
    urgent = floor(var.lambda_max_concurrency * 6 / 10)
    normal = floor(var.lambda_max_concurrency * 3 / 10)
    bulk   = floor(var.lambda_max_concurrency * 1 / 10)
  }
}

resource "aws_lambda_function" "worker" {
  # checkov:skip=CKV_AWS_116:messages that fail stay in their queue, and the worker writes dead letters itself
  # checkov:skip=CKV_AWS_117:the function reaches nothing in a VPC; who needs fixed addresses runs workers as tasks
  # checkov:skip=CKV_AWS_50:spans go to a collector that speaks OTLP, where PUNCTUAL_TRACES asks for it
  # checkov:skip=CKV_AWS_173:its environment holds no secret
  # checkov:skip=CKV_AWS_272:the package is pinned by the version of its object; who signs code adds a signing configuration
  count = local.with_worker_function ? 1 : 0

  function_name                  = "${var.prefix}-worker"
  description                    = "Works on the runs of Punctual's queues"
  role                           = aws_iam_role.function[0].arn
  runtime                        = "provided.al2023"
  handler                        = "bootstrap"
  architectures                  = [var.cpu_architecture == "ARM64" ? "arm64" : "x86_64"]
  s3_bucket                      = var.worker_package.bucket
  s3_key                         = var.worker_package.key
  s3_object_version              = var.worker_package.version
  timeout                        = var.lambda_timeout_s
  memory_size                    = var.lambda_memory_mib
  reserved_concurrent_executions = var.lambda_max_concurrency

  environment {
    variables = local.worker_settings
  }

  logging_config {
    log_format = "Text"
    log_group  = aws_cloudwatch_log_group.service["function"].name
  }
}

# What waits for long is sent again, by design and not in a loop: without this Lambda stops a message that the function re-sent about 16
# times, and it is lost.
resource "aws_lambda_function_recursion_config" "worker" {
  count = local.with_worker_function ? 1 : 0

  function_name  = aws_lambda_function.worker[0].function_name
  recursive_loop = "Allow"
}

resource "aws_lambda_event_source_mapping" "worker" {
  for_each = local.with_worker_function ? local.function_concurrency : {}

  function_name           = aws_lambda_function.worker[0].arn
  event_source_arn        = module.priority_queue[each.key].arn
  enabled                 = var.running
  batch_size              = 10
  function_response_types = ["ReportBatchItemFailures"]

  scaling_config {
    maximum_concurrency = each.value
  }

  # Nothing is taken before what is re-sent is allowed, and before the function may report.
  depends_on = [aws_lambda_function_recursion_config.worker, aws_iam_role_policy.function, aws_iam_role_policy.function_log, aws_iam_role_policy.key]
}
