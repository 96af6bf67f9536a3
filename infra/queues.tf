# One queue for each priority, and the dead letters. Retention, receive count and names are those of core/src/aws.

locals {
  with_function = contains(["lambda", "both"], var.worker_runtime)
  with_tasks    = contains(["ecs", "both"], var.worker_runtime)

  # Lambda asks for six times the function's timeout. Tasks name the visibility of what they receive themselves.
  visibility_s = local.with_function ? 6 * var.lambda_timeout_s : 60
}

module "priority_queue" {
  source   = "./modules/priority_queue"
  for_each = toset(["urgent", "normal", "bulk"])

  prefix                 = var.prefix
  priority               = each.key
  visibility_s           = local.visibility_s
  dead_letters_arn       = aws_sqs_queue.dead_letters.arn
  kms_key_arn            = var.kms_key_arn
  with_alarms            = !var.only_store
  alarms_act             = var.running
  alarm_actions          = var.alarm_actions
  runbook_url            = var.runbook_url
  backlog_alarm_messages = var.backlog_alarm_messages
  oldest_message_alarm_s = var.oldest_message_alarm_s[each.key]
}

resource "aws_sqs_queue" "dead_letters" {
  name                              = "${var.prefix}-dead-letters"
  message_retention_seconds         = 1209600
  visibility_timeout_seconds        = 60
  sqs_managed_sse_enabled           = var.kms_key_arn == null ? true : null
  kms_master_key_id                 = var.kms_key_arn
  kms_data_key_reuse_period_seconds = var.kms_key_arn == null ? null : 300
}

# No other queue may redrive into it.
resource "aws_sqs_queue_redrive_allow_policy" "dead_letters" {
  queue_url = aws_sqs_queue.dead_letters.id
  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [for queue in module.priority_queue : queue.arn]
  })
}
