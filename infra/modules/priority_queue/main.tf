# The queue of one priority. All that Punctual promises about a run in it rests on three attributes: messages are kept for 14
# days, hidden for longer than a receiver works on them, and moved by SQS itself only as a net.

resource "aws_sqs_queue" "this" {
  name                              = "${var.prefix}-${var.priority}"
  message_retention_seconds         = 1209600
  visibility_timeout_seconds        = var.visibility_s
  receive_wait_time_seconds         = 0
  sqs_managed_sse_enabled           = var.kms_key_arn == null ? true : null
  kms_master_key_id                 = var.kms_key_arn
  kms_data_key_reuse_period_seconds = var.kms_key_arn == null ? null : 300

  # Attempts are counted in the run's row; workers see to it that this count is not reached.
  redrive_policy = jsonencode({
    deadLetterTargetArn = var.dead_letters_arn
    maxReceiveCount     = 1000
  })
}

resource "aws_cloudwatch_metric_alarm" "oldest_message" {
  # checkov:skip=CKV_AWS_319:alarms act, but not while the installation is stopped on purpose
  count = var.with_alarms ? 1 : 0

  alarm_name          = "${var.prefix}-oldest-message-${var.priority}"
  alarm_description   = "Runs wait in the ${var.priority} queue. ${var.runbook_url}#backlog"
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateAgeOfOldestMessage"
  dimensions          = { QueueName = aws_sqs_queue.this.name }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 5
  threshold           = var.oldest_message_alarm_s
  comparison_operator = "GreaterThanThreshold"
  # SQS tells nothing of a queue that nobody has used for hours.
  treat_missing_data = "notBreaching"
  actions_enabled    = var.alarms_act
  alarm_actions      = var.alarm_actions
  ok_actions         = var.alarm_actions
}

resource "aws_cloudwatch_metric_alarm" "backlog" {
  # checkov:skip=CKV_AWS_319:alarms act, but not while the installation is stopped on purpose
  count = var.with_alarms ? 1 : 0

  alarm_name          = "${var.prefix}-backlog-${var.priority}"
  alarm_description   = "More runs wait in the ${var.priority} queue than workers do in five minutes. ${var.runbook_url}#backlog"
  namespace           = "Punctual"
  metric_name         = "punctual_queue_messages"
  dimensions          = { service = "dispatch", priority = var.priority, state = "visible" }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 10
  threshold           = var.backlog_alarm_messages
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  actions_enabled     = var.alarms_act
  alarm_actions       = var.alarm_actions
  ok_actions          = var.alarm_actions
}
