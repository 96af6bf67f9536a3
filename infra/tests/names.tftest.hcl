# Names and keys, as core/src/aws has them: programs find their tables and queues by nothing else.

variables {
  environment = "dev"
  region      = "eu-west-1"
  prefix      = "bank-1"
  vpc_id      = "vpc-0123456789abcdef0"
  subnet_ids  = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
  image       = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/punctual:0.1.0"
}

run "names_begin_with_the_prefix" {
  assert {
    condition = [
      for table in [aws_dynamodb_table.jobs, aws_dynamodb_table.runs, aws_dynamodb_table.leases, aws_dynamodb_table.control] : table.name
    ] == ["bank-1-jobs", "bank-1-runs", "bank-1-leases", "bank-1-control"]
    error_message = "names of tables"
  }
  assert {
    condition     = { for priority, queue in module.priority_queue : priority => queue.name } == { urgent = "bank-1-urgent", normal = "bank-1-normal", bulk = "bank-1-bulk" } && aws_sqs_queue.dead_letters.name == "bank-1-dead-letters"
    error_message = "names of queues"
  }
  assert {
    condition     = contains(jsondecode(aws_ecs_task_definition.scheduler[0].container_definitions)[0].environment, { name = "PUNCTUAL_STORE_PREFIX", value = "bank-1" })
    error_message = "programs are told the prefix"
  }
}

run "what_expires_does_so_by_one_attribute" {
  assert {
    condition = alltrue([
      for table in [aws_dynamodb_table.jobs, aws_dynamodb_table.runs, aws_dynamodb_table.control] : table.ttl[0].enabled && table.ttl[0].attribute_name == "expires_at"
    ]) && length(aws_dynamodb_table.leases.ttl) == 0
    error_message = "jobs, runs and settings expire, leases do not"
  }
}

run "indexes_hold_keys_only" {
  assert {
    condition     = { for index in aws_dynamodb_table.jobs.global_secondary_index : index.name => [index.hash_key, index.range_key, index.projection_type] } == { due = ["due_bucket", "next_due_at", "KEYS_ONLY"], tenant = ["tenant", "job_key", "KEYS_ONLY"] }
    error_message = "indexes of jobs"
  }
  assert {
    condition     = { for index in aws_dynamodb_table.runs.global_secondary_index : index.name => [index.hash_key, index.range_key, index.projection_type] } == { attention = ["attention_tenant", "completed_at_ms", "KEYS_ONLY"] }
    error_message = "index of runs"
  }
}

run "each_alarm_names_its_section" {
  variables {
    runbook_url = "https://runbooks.example.com/operations.md"
  }

  assert {
    condition = alltrue([
      for alarm in concat(values(aws_cloudwatch_metric_alarm.simple), values(aws_cloudwatch_metric_alarm.computed)) :
      can(regex("https://runbooks[.]example[.]com/operations[.]md#[a-z-]+$", alarm.alarm_description)) && startswith(alarm.alarm_name, "bank-1-")
    ])
    error_message = "who is woken is told where to read"
  }
}

run "a_prefix_that_a_load_balancer_would_refuse_is_refused" {
  command = plan
  variables {
    prefix = "bank_1"
  }
  expect_failures = [var.prefix]
}

run "a_prefix_that_is_too_long_is_refused" {
  command = plan
  variables {
    prefix = "a123456789012345678901234"
  }
  expect_failures = [var.prefix]
}
