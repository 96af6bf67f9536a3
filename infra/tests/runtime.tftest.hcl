# The runtime switch: who works, who may, and how the limits are cut.

variables {
  environment    = "dev"
  region         = "eu-west-1"
  prefix         = "punctual-dev"
  vpc_id         = "vpc-0123456789abcdef0"
  subnet_ids     = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
  image          = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/punctual:0.1.0"
  worker_package = { bucket = "example-artifacts", key = "punctual/worker.zip", version = "1" }
  worker_tasks   = { min = 1, max = 10 }
}

run "tasks_hold_shares_under_lease_and_there_is_no_function" {
  variables {
    worker_runtime = "ecs"
  }

  assert {
    condition     = length(aws_ecs_service.worker) == 1 && length(aws_lambda_function.worker) == 0 && length(aws_lambda_event_source_mapping.worker) == 0
    error_message = "ecs means tasks, and nothing of Lambda"
  }
  assert {
    condition     = !contains(keys(local.worker_settings), "PUNCTUAL_WORK_MAX_CONCURRENCY")
    error_message = "tasks by themselves hold shares under lease"
  }
  assert {
    condition     = length(aws_iam_role.worker) == 1 && length(aws_iam_role.function) == 0
    error_message = "the tasks have a role, the function has none"
  }
}

run "a_function_has_fixed_parts_of_the_limits_in_the_ratio_of_the_weights" {
  variables {
    worker_runtime         = "lambda"
    lambda_max_concurrency = 50
  }

  assert {
    condition     = length(aws_ecs_service.worker) == 0 && length(aws_appautoscaling_target.worker) == 0 && length(aws_ecs_task_definition.worker) == 0
    error_message = "lambda means no worker tasks"
  }
  assert {
    condition     = length(aws_ecs_service.scheduler) == 1
    error_message = "schedulers are tasks whatever workers are"
  }
  assert {
    condition     = { for priority, source in aws_lambda_event_source_mapping.worker : priority => source.scaling_config[0].maximum_concurrency } == { urgent = 30, normal = 15, bulk = 5 }
    error_message = "concurrency is 6/3/1 of ten"
  }
  assert {
    condition     = aws_lambda_function.worker[0].environment[0].variables["PUNCTUAL_WORK_MAX_CONCURRENCY"] == "50" && aws_lambda_function.worker[0].reserved_concurrent_executions == 50
    error_message = "limits are cut by the number of functions that can run, and no more can run"
  }
  assert {
    condition     = alltrue([for source in aws_lambda_event_source_mapping.worker : source.function_response_types == toset(["ReportBatchItemFailures"]) && source.batch_size == 10])
    error_message = "the function reports which messages come again"
  }
  assert {
    condition     = aws_lambda_function_recursion_config.worker[0].recursive_loop == "Allow"
    error_message = "messages are sent again by design"
  }
  assert {
    condition     = length(aws_iam_role.worker) == 0 && length(aws_iam_role.function) == 1
    error_message = "the function has a role, the tasks have none"
  }
}

run "both_together_stay_within_the_limits" {
  variables {
    worker_runtime         = "both"
    lambda_max_concurrency = 20
  }

  assert {
    condition     = length(aws_ecs_service.worker) == 1 && length(aws_lambda_function.worker) == 1
    error_message = "both means tasks and a function"
  }
  assert {
    condition     = aws_lambda_function.worker[0].environment[0].variables["PUNCTUAL_WORK_MAX_CONCURRENCY"] == "40"
    error_message = "20 functions and, in a deployment, 20 tasks share each limit"
  }
  assert {
    condition = anytrue([
      for setting in jsondecode(aws_ecs_task_definition.worker[0].container_definitions)[0].environment :
      setting.name == "PUNCTUAL_WORK_MAX_CONCURRENCY" && setting.value == "40"
    ])
    error_message = "tasks beside functions have the same fixed part: shares under lease would be the whole limit once more"
  }
}

run "a_function_is_given_no_secret" {
  command = plan
  variables {
    worker_runtime     = "lambda"
    sms_url_secret_arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:sms-AbCdEf"
  }
  expect_failures = [var.sms_url_secret_arn]
}

run "tasks_get_secrets_by_arn_and_only_their_starter_may_read_them" {
  variables {
    worker_runtime     = "ecs"
    sms_url_secret_arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:sms-AbCdEf"
  }

  assert {
    condition     = jsondecode(aws_ecs_task_definition.worker[0].container_definitions)[0].secrets == [{ name = "PUNCTUAL_SMS_URL", valueFrom = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:sms-AbCdEf" }]
    error_message = "the secret is named, not copied"
  }
  assert {
    condition     = strcontains(data.aws_iam_policy_document.execution["worker"].json, "secretsmanager:GetSecretValue") && !strcontains(data.aws_iam_policy_document.execution["scheduler"].json, "secretsmanager")
    error_message = "the secret concerns workers alone"
  }
}

run "a_function_needs_its_package" {
  command = plan
  variables {
    worker_runtime = "lambda"
    worker_package = null
  }
  expect_failures = [var.worker_runtime]
}

run "what_is_stopped_runs_nowhere" {
  variables {
    worker_runtime = "both"
    running        = false
  }

  assert {
    condition     = aws_ecs_service.scheduler[0].desired_count == 0 && length(aws_ecs_service.worker) == 0 && alltrue([for source in aws_lambda_event_source_mapping.worker : !source.enabled])
    error_message = "stopped means no scheduler, no worker, and nothing taken for the function"
  }
  assert {
    condition     = alltrue([for alarm in aws_cloudwatch_metric_alarm.simple : !alarm.actions_enabled])
    error_message = "nobody is woken by a stop on purpose"
  }
}

run "containers_write_nowhere_and_are_nobody" {
  variables {
    api_certificate_arn = "arn:aws:acm:eu-west-1:123456789012:certificate/01234567-89ab-cdef-0123-456789abcdef"
    api_client_cidrs    = ["10.0.0.0/16"]
  }

  assert {
    condition = alltrue([
      for definition in [aws_ecs_task_definition.scheduler[0], aws_ecs_task_definition.worker[0], aws_ecs_task_definition.api[0], aws_ecs_task_definition.operator[0]] :
      alltrue([
        for container in jsondecode(definition.container_definitions) :
        container.readonlyRootFilesystem && container.user == "65532:65532" && container.linuxParameters.capabilities.drop == ["ALL"] &&
        contains(container.environment, { name = "PUNCTUAL_METRICS", value = "emf" }) && contains(container.environment, { name = "PUNCTUAL_LOG_FORMAT", value = "json" })
      ])
    ])
    error_message = "every container has a read-only file system, no root, and tells metrics and logs for CloudWatch"
  }
  assert {
    condition     = aws_lb.api[0].internal && aws_lb_listener.api[0].protocol == "HTTPS"
    error_message = "the API is inside, behind TLS"
  }
}

run "without_a_certificate_there_is_no_api" {
  assert {
    condition     = length(aws_ecs_service.api) == 0 && length(aws_lb.api) == 0 && length(aws_iam_role.api) == 0 && !contains(keys(aws_cloudwatch_metric_alarm.simple), "api-errors")
    error_message = "the API is off unless a certificate is given"
  }
}

run "an_emulator_gets_tables_and_queues_only" {
  variables {
    only_store     = true
    local_endpoint = "http://127.0.0.1:4566"
    vpc_id         = null
    subnet_ids     = []
    image          = null
  }

  assert {
    condition     = length(aws_ecs_cluster.this) == 0 && length(aws_cloudwatch_metric_alarm.simple) == 0 && length(aws_iam_role.operator) == 0 && length(aws_cloudwatch_log_group.service) == 0
    error_message = "only tables and queues"
  }
  assert {
    condition     = length(module.priority_queue) == 3 && aws_dynamodb_table.jobs.name == "punctual-dev-jobs"
    error_message = "all of them"
  }
}
