# One alarm, or a few, for each section of docs/operations.md. Backlog and oldest message are with their queues, in modules/priority_queue.
# CloudWatch keeps the metrics under the namespace Punctual and the service's name, without the installation's: one installation for
# each account and region.

locals {
  services = toset(concat(["dispatch", "worker"], local.with_api ? ["api"] : []))
  callers  = ["sms", "email", "webhook", "queue"]
  handlers = concat(local.callers, ["noop"])
  shards   = var.shards.urgent + var.shards.standard

  # Alarms on one metric. Left out: the maximum over five minutes, once, above the threshold; no data is no trouble.
  alarms = merge(
    {
      for priority in ["urgent", "normal", "bulk"] : "dispatch-lag-${priority}" => {
        section    = "dispatch-lag"
        summary    = "One run in a hundred reaches the ${priority} queue late."
        metric     = "punctual_dispatch_lag_seconds"
        dimensions = { service = "dispatch", priority = priority }
        percentile = "p99"
        threshold  = priority == "urgent" ? 2 : 10
      }
    },
    {
      for priority in ["urgent", "normal", "bulk"] : "start-lag-${priority}" => {
        section    = "start-lag"
        summary    = "One ${priority} run in a hundred starts late."
        metric     = "punctual_start_lag_seconds"
        dimensions = { service = "worker", priority = priority }
        percentile = "p99"
        threshold  = priority == "urgent" ? 2 : 60
      }
    },
    {
      shards-unheld = {
        section    = "shards-unheld"
        summary    = "Fewer than ${local.shards} shards have a scheduler, or no scheduler tells anything."
        metric     = "punctual_shards_held"
        dimensions = { service = "dispatch" }
        # Each copy tells its own once a minute.
        statistic  = "Sum"
        period     = 60
        periods    = 5
        comparison = "LessThanThreshold"
        threshold  = local.shards
        missing    = "breaching"
      }
      lease-churn = {
        section    = "shards-unheld"
        summary    = "Shards change hands again and again: copies come and go, or cannot keep their leases."
        metric     = "punctual_shards_taken_total"
        dimensions = { service = "dispatch" }
        statistic  = "Sum"
        period     = 1800
        threshold  = 4 * local.shards
      }
      dispatch-failures = {
        section    = "dispatch-failures"
        summary    = "Passes over the timetable fail: more than one in ten seconds."
        metric     = "punctual_dispatch_pass_failures_total"
        dimensions = { service = "dispatch" }
        statistic  = "Sum"
        threshold  = 30
      }
      cursor-age = {
        section    = "cursor-age"
        summary    = "A shard's oldest minute does not become empty."
        metric     = "punctual_cursor_age_seconds"
        dimensions = { service = "dispatch" }
        threshold  = 900
      }
      quarantined-jobs = {
        section    = "quarantined-jobs"
        summary    = "Jobs were set aside and do not fire."
        metric     = "punctual_quarantined_jobs"
        dimensions = { service = "dispatch" }
        threshold  = 0
      }
      dead-letters = {
        section    = "dead-letters"
        summary    = "Runs wait for a person."
        metric     = "punctual_dead_letter_rows"
        dimensions = { service = "dispatch" }
        threshold  = 0
      }
      dead-letter-age = {
        section    = "dead-letter-age"
        summary    = "A run has been waiting for a person for a day."
        metric     = "punctual_oldest_dead_letter_age_seconds"
        dimensions = { service = "dispatch" }
        threshold  = 86400
      }
      stuck-runs = {
        section    = "stuck-runs"
        summary    = "Runs of workers that are gone do not end."
        metric     = "punctual_runs_stuck"
        dimensions = { service = "worker" }
        periods    = 2
        threshold  = 0
      }
      takeovers = {
        section    = "stuck-runs"
        summary    = "Workers end badly: more than 20 runs were taken over in ten minutes."
        metric     = "punctual_takeovers_total"
        dimensions = { service = "worker" }
        statistic  = "Sum"
        period     = 600
        threshold  = 20
      }
      store-failures = {
        section    = "store-failures"
        summary    = "Workers' calls to the tables fail: more than one a second."
        metric     = "punctual_store_failures_total"
        dimensions = { service = "worker" }
        statistic  = "Sum"
        threshold  = 300
      }
      holds = {
        section    = "holds"
        summary    = "Somebody has held runs back for three hours."
        metric     = "punctual_holds_in_force"
        dimensions = { service = "worker" }
        # In force all the time, and not somewhen in each hour.
        statistic  = "Minimum"
        period     = 3600
        periods    = 3
        comparison = "GreaterThanThreshold"
        threshold  = 0
      }
    },
    var.heartbeat ? {
      heartbeat = {
        section    = "heartbeat"
        summary    = "The heartbeat did not come through for three minutes: timetable, queue, worker or row."
        metric     = "punctual_heartbeat_lag_seconds"
        dimensions = { service = "worker" }
        statistic  = "SampleCount"
        period     = 60
        periods    = 3
        comparison = "LessThanThreshold"
        threshold  = 1
        missing    = "breaching"
      }
    } : {},
    local.with_api ? {
      api-errors = {
        section    = "api-errors"
        summary    = "The Jobs API could not answer."
        metric     = "punctual_api_failures_total"
        dimensions = { service = "api" }
        statistic  = "Sum"
        threshold  = 0
      }
    } : {},
  )

  # Alarms on what several metrics come to: 1 is trouble. What did not move is not told, and only functions of lists (SUM, MAX) go by what there is.
  computed_alarms = merge(
    {
      dispatch-stopped = {
        section    = "dispatch-stopped"
        summary    = "Runs are due, and none reaches a queue."
        period     = 300
        periods    = 1
        expression = "IF(due > 0 AND SUM([0 * due, enqueued]) == 0, 1, 0)"
        metrics = {
          due      = { metric = "punctual_runs_due_total", dimensions = { service = "dispatch" }, statistic = "Sum" }
          enqueued = { metric = "punctual_runs_enqueued_total", dimensions = { service = "dispatch" }, statistic = "Sum" }
        }
      }
      failure-rate = {
        section    = "failure-rate"
        summary    = "More than one call in twenty fails, of twenty at least."
        period     = 600
        periods    = 1
        expression = "IF(attempts >= 20 AND SUM([0 * attempts, ${join(", ", [for handler in local.handlers : "delivered_${handler}"])}]) < 0.95 * attempts, 1, 0)"
        metrics = merge(
          { attempts = { metric = "punctual_attempts_total", dimensions = { service = "worker" }, statistic = "Sum" } },
          {
            for handler in local.handlers : "delivered_${handler}" => {
              metric     = "punctual_attempts_total"
              dimensions = { service = "worker", handler = handler, outcome = "delivered" }
              statistic  = "Sum"
            }
          },
        )
      }
      circuits = {
        section    = "circuits"
        summary    = "Most of the latest calls to a target failed: none is made for a while."
        period     = 60
        periods    = 5
        expression = "IF(MAX([${join(", ", [for handler in local.callers : "open_${handler}"])}]) > 0, 1, 0)"
        metrics = {
          for handler in local.callers : "open_${handler}" => {
            metric     = "punctual_circuits"
            dimensions = { service = "worker", handler = handler, state = "open" }
            statistic  = "Maximum"
          }
        }
      }
      # What dispatch and workers count misses what SQS itself moves.
      dead-letters-arrive = {
        section    = "dead-letters"
        summary    = "Letters came to the queue of dead letters, some of which may have no row."
        period     = 300
        periods    = 1
        expression = "IF(DIFF(FILL(letters, 0)) > 0, 1, 0)"
        metrics = {
          letters = {
            namespace  = "AWS/SQS"
            metric     = "ApproximateNumberOfMessagesVisible"
            dimensions = { QueueName = aws_sqs_queue.dead_letters.name }
            statistic  = "Maximum"
          }
        }
      }
    },
    {
      for service in local.services : "clock-offset-${service}" => {
        section    = "clock-offset"
        summary    = "The clock of a host of ${service} is wrong by more than a second."
        period     = 300
        periods    = 1
        expression = "IF(ahead > 1 OR behind < -1, 1, 0)"
        metrics = {
          ahead  = { metric = "punctual_clock_offset_seconds", dimensions = { service = service }, statistic = "Maximum" }
          behind = { metric = "punctual_clock_offset_seconds", dimensions = { service = service }, statistic = "Minimum" }
        }
      }
    },
    {
      for aws_service in ["dynamodb", "sqs"] : "throttles-${aws_service}" => {
        section    = "throttles"
        summary    = "${aws_service} asks for fewer calls: more than one a second is refused."
        period     = 300
        periods    = 1
        expression = "IF(SUM([${join(", ", [for service in local.services : "by_${service}"])}]) > 300, 1, 0)"
        metrics = {
          for service in local.services : "by_${service}" => {
            metric     = "punctual_throttles_total"
            dimensions = { service = service, aws_service = aws_service }
            statistic  = "Sum"
          }
        }
      }
    },
  )
}

resource "aws_cloudwatch_metric_alarm" "simple" {
  # checkov:skip=CKV_AWS_319:alarms act, but not while the installation is stopped on purpose
  for_each = { for name, alarm in local.alarms : name => alarm if local.with_services }

  alarm_name          = "${var.prefix}-${each.key}"
  alarm_description   = "${each.value.summary} ${var.runbook_url}#${each.value.section}"
  namespace           = "Punctual"
  metric_name         = each.value.metric
  dimensions          = each.value.dimensions
  statistic           = try(each.value.percentile, null) != null ? null : try(each.value.statistic, "Maximum")
  extended_statistic  = try(each.value.percentile, null)
  period              = try(each.value.period, 300)
  evaluation_periods  = try(each.value.periods, 1)
  comparison_operator = try(each.value.comparison, "GreaterThanThreshold")
  threshold           = each.value.threshold
  treat_missing_data  = try(each.value.missing, "notBreaching")
  actions_enabled     = var.running
  alarm_actions       = var.alarm_actions
  ok_actions          = var.alarm_actions
}

resource "aws_cloudwatch_metric_alarm" "computed" {
  # checkov:skip=CKV_AWS_319:alarms act, but not while the installation is stopped on purpose
  for_each = { for name, alarm in local.computed_alarms : name => alarm if local.with_services }

  alarm_name          = "${var.prefix}-${each.key}"
  alarm_description   = "${each.value.summary} ${var.runbook_url}#${each.value.section}"
  evaluation_periods  = each.value.periods
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = 1
  treat_missing_data  = "notBreaching"
  actions_enabled     = var.running
  alarm_actions       = var.alarm_actions
  ok_actions          = var.alarm_actions

  metric_query {
    id          = "trouble"
    expression  = each.value.expression
    label       = each.key
    return_data = true
  }
  dynamic "metric_query" {
    for_each = each.value.metrics
    content {
      id = metric_query.key
      metric {
        namespace   = try(metric_query.value.namespace, "Punctual")
        metric_name = metric_query.value.metric
        dimensions  = metric_query.value.dimensions
        stat        = metric_query.value.statistic
        period      = each.value.period
      }
    }
  }
}
