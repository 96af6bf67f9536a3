# Workers as tasks, added when runs wait.

locals {
  # Secrets Manager's secrets, by the setting that holds them. ECS puts them into the environment when a task starts.
  secrets = {
    for name, arn in { PUNCTUAL_SMS_URL = var.sms_url_secret_arn, PUNCTUAL_SMTP_URL = var.smtp_url_secret_arn } : name => arn
    if arn != null
  }

  worker_secrets = { for key, secrets in { secrets = [for name, arn in local.secrets : { name = name, valueFrom = arn }] } : key => secrets if length(secrets) > 0 }

  worker_settings = merge(
    var.worker_settings,
    local.settings,
    {
      PUNCTUAL_WORK_ATTEMPT_TIMEOUT_S = tostring(var.attempt_timeout_s)
      PUNCTUAL_WORK_SLOTS             = tostring(var.worker_slots)
      PUNCTUAL_WORK_PREFETCH          = tostring(2 * var.worker_slots)
    },
    var.email_from == null ? {} : { PUNCTUAL_EMAIL_FROM = var.email_from },
    length(var.webhook_allow) == 0 ? {} : { PUNCTUAL_WEBHOOK_ALLOW = join(",", var.webhook_allow) },
    # Functions have fixed parts of each limit. Where tasks work beside them, all have: shares under lease would be the whole limit once
    # more. A deployment runs twice the tasks for a while.
    !local.with_function ? {} : {
      PUNCTUAL_WORK_MAX_CONCURRENCY = tostring(var.lambda_max_concurrency + (local.with_tasks ? 2 * var.worker_tasks.max : 0))
    },
  )
  with_worker_tasks = local.with_services && local.with_tasks
  # A service whose tasks are scaled has no number that could be set to 0: stopped, it is not there.
  worker_tasks_run = local.with_worker_tasks && var.running
}

resource "aws_ecs_task_definition" "worker" {
  count = local.with_worker_tasks ? 1 : 0

  family                   = "${var.prefix}-worker"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = var.worker_size.cpu
  memory                   = var.worker_size.memory_mib
  execution_role_arn       = aws_iam_role.execution["worker"].arn
  task_role_arn            = aws_iam_role.worker[0].arn

  runtime_platform {
    cpu_architecture        = var.cpu_architecture
    operating_system_family = "LINUX"
  }

  # The image makes this folder and gives it to its user; the file system beside it is read-only.
  volume {
    name = "alive"
  }

  container_definitions = jsonencode([merge(local.container, local.worker_secrets, {
    name       = "worker"
    image      = local.images["worker"]
    entryPoint = ["/usr/local/bin/punctual-worker"]
    environment = [
      for name, value in merge(local.worker_settings, {
        PUNCTUAL_WORK_STOP_S     = tostring(var.worker_stop_s)
        PUNCTUAL_WORK_ALIVE_FILE = "/run/punctual/alive"
      }) : { name = name, value = value }
    ]
    mountPoints = [{ sourceVolume = "alive", containerPath = "/run/punctual", readOnly = false }]
    healthCheck = {
      command     = ["CMD", "/usr/local/bin/punctual-worker", "--check-alive"]
      interval    = 10
      timeout     = 5
      retries     = 3
      startPeriod = 30
    }
    # Calls end, what was not begun is given back (5 s), the last figures are told.
    stopTimeout      = var.worker_stop_s + 15
    logConfiguration = local.log_configuration["worker"]
  })])
}

resource "aws_ecs_service" "worker" {
  count = local.worker_tasks_run ? 1 : 0

  name                               = "worker"
  cluster                            = aws_ecs_cluster.this[0].id
  task_definition                    = aws_ecs_task_definition.worker[0].arn
  desired_count                      = var.worker_tasks.min
  launch_type                        = "FARGATE"
  availability_zone_rebalancing      = "ENABLED"
  propagate_tags                     = "SERVICE"
  deployment_minimum_healthy_percent = 100
  deployment_maximum_percent         = 200

  network_configuration {
    subnets          = var.subnet_ids
    security_groups  = [aws_security_group.task["worker"].id]
    assign_public_ip = false
  }

  deployment_circuit_breaker {
    enable   = true
    rollback = true
  }

  depends_on = [aws_iam_role_policy.worker, aws_iam_role_policy.execution, aws_iam_role_policy.key]

  lifecycle {
    # The scaling below decides.
    ignore_changes = [desired_count]
  }
}

resource "aws_appautoscaling_target" "worker" {
  count = local.worker_tasks_run ? 1 : 0

  service_namespace  = "ecs"
  scalable_dimension = "ecs:service:DesiredCount"
  resource_id        = "service/${aws_ecs_cluster.this[0].name}/${aws_ecs_service.worker[0].name}"
  min_capacity       = var.worker_tasks.min
  max_capacity       = var.worker_tasks.max
}

resource "aws_appautoscaling_policy" "worker_out" {
  count = local.worker_tasks_run ? 1 : 0

  name               = "${var.prefix}-worker-out"
  policy_type        = "StepScaling"
  service_namespace  = aws_appautoscaling_target.worker[0].service_namespace
  scalable_dimension = aws_appautoscaling_target.worker[0].scalable_dimension
  resource_id        = aws_appautoscaling_target.worker[0].resource_id

  step_scaling_policy_configuration {
    adjustment_type          = "PercentChangeInCapacity"
    min_adjustment_magnitude = 1
    cooldown                 = 120
    metric_aggregation_type  = "Maximum"

    # By how many times the bound is exceeded, less one.
    step_adjustment {
      metric_interval_lower_bound = 0
      metric_interval_upper_bound = 2
      scaling_adjustment          = 50
    }
    step_adjustment {
      metric_interval_lower_bound = 2
      scaling_adjustment          = 100
    }
  }
}

resource "aws_appautoscaling_policy" "worker_in" {
  count = local.worker_tasks_run ? 1 : 0

  name               = "${var.prefix}-worker-in"
  policy_type        = "StepScaling"
  service_namespace  = aws_appautoscaling_target.worker[0].service_namespace
  scalable_dimension = aws_appautoscaling_target.worker[0].scalable_dimension
  resource_id        = aws_appautoscaling_target.worker[0].resource_id

  step_scaling_policy_configuration {
    adjustment_type         = "ChangeInCapacity"
    cooldown                = 300
    metric_aggregation_type = "Maximum"

    step_adjustment {
      metric_interval_upper_bound = 0
      scaling_adjustment          = -1
    }
  }
}

locals {
  # What waits and for how long, as parts of their bounds: 1 is reached.
  worker_scaling_metrics = concat(
    [for priority in ["urgent", "normal", "bulk"] : { id = "waiting_${priority}", metric = "ApproximateNumberOfMessagesVisible", priority = priority }],
    [for priority in ["urgent", "normal"] : { id = "oldest_${priority}", metric = "ApproximateAgeOfOldestMessage", priority = priority }],
  )
  worker_scaling_load = join("", [
    "MAX([SUM([waiting_urgent, waiting_normal, waiting_bulk]) / ${var.worker_scaling.messages}, ",
    "oldest_urgent / ${var.worker_scaling.age_s}, oldest_normal / ${var.worker_scaling.age_s}])",
  ])
}

resource "aws_cloudwatch_metric_alarm" "worker_out" {
  count = local.worker_tasks_run ? 1 : 0

  alarm_name          = "${var.prefix}-worker-out"
  alarm_description   = "Adds worker tasks: messages or the age of the oldest are above worker_scaling. No person needs to act."
  evaluation_periods  = 2
  threshold           = 1
  comparison_operator = "GreaterThanOrEqualToThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_appautoscaling_policy.worker_out[0].arn]

  metric_query {
    id          = "load"
    expression  = local.worker_scaling_load
    label       = "what waits, as a part of worker_scaling"
    return_data = true
  }
  dynamic "metric_query" {
    for_each = local.worker_scaling_metrics
    content {
      id = metric_query.value.id
      metric {
        namespace   = "AWS/SQS"
        metric_name = metric_query.value.metric
        dimensions  = { QueueName = module.priority_queue[metric_query.value.priority].name }
        stat        = "Maximum"
        period      = 60
      }
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "worker_in" {
  count = local.worker_tasks_run ? 1 : 0

  alarm_name          = "${var.prefix}-worker-in"
  alarm_description   = "Takes worker tasks away: messages and the age of the oldest were below a tenth of worker_scaling. No person needs to act."
  evaluation_periods  = 15
  threshold           = 0.1
  comparison_operator = "LessThanThreshold"
  # SQS tells nothing of queues that have been empty for hours.
  treat_missing_data = "breaching"
  alarm_actions      = [aws_appautoscaling_policy.worker_in[0].arn]

  metric_query {
    id          = "load"
    expression  = local.worker_scaling_load
    label       = "what waits, as a part of worker_scaling"
    return_data = true
  }
  dynamic "metric_query" {
    for_each = local.worker_scaling_metrics
    content {
      id = metric_query.value.id
      metric {
        namespace   = "AWS/SQS"
        metric_name = metric_query.value.metric
        dimensions  = { QueueName = module.priority_queue[metric_query.value.priority].name }
        stat        = "Maximum"
        period      = 60
      }
    }
  }
}
