# Times that hang together: visibility and the function's timeout, attempts and stops.

variables {
  environment    = "dev"
  region         = "eu-west-1"
  vpc_id         = "vpc-0123456789abcdef0"
  subnet_ids     = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
  image          = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/punctual:0.1.0"
  worker_package = { bucket = "example-artifacts", key = "punctual/worker.zip", version = "1" }
}

run "tasks_alone_need_a_minute" {
  variables {
    worker_runtime   = "ecs"
    lambda_timeout_s = 300
  }

  assert {
    condition     = output.visibility_s == 60
    error_message = "without functions a crash delays a run by 60 s"
  }
}

run "functions_need_six_times_their_timeout" {
  variables {
    worker_runtime   = "lambda"
    lambda_timeout_s = 75
  }

  assert {
    condition     = output.visibility_s == 450 && output.visibility_s >= 6 * aws_lambda_function.worker[0].timeout
    error_message = "a message is hidden for six times the function's timeout"
  }
}

run "beside_tasks_they_need_it_too" {
  variables {
    worker_runtime   = "both"
    lambda_timeout_s = 60
  }

  assert {
    condition     = output.visibility_s == 360
    error_message = "whoever takes part decides"
  }
}

run "a_function_that_ends_before_its_call_is_refused" {
  command = plan
  variables {
    worker_runtime    = "lambda"
    attempt_timeout_s = 54
    lambda_timeout_s  = 60
  }
  expect_failures = [var.lambda_timeout_s]
}

run "the_shortest_that_fits_is_taken" {
  command = plan
  variables {
    worker_runtime    = "lambda"
    attempt_timeout_s = 53
    lambda_timeout_s  = 60
  }
}

run "a_stop_that_cuts_calls_off_is_refused" {
  command = plan
  variables {
    attempt_timeout_s = 30
    worker_stop_s     = 34
  }
  expect_failures = [var.worker_stop_s]
}

run "tasks_are_given_longer_than_they_need_to_stop" {
  variables {
    attempt_timeout_s = 30
    worker_stop_s     = 35
  }

  assert {
    condition     = jsondecode(aws_ecs_task_definition.worker[0].container_definitions)[0].stopTimeout == 50
    error_message = "after the calls come the last calls to the queue, and the last figures"
  }
  assert {
    condition     = jsondecode(aws_ecs_task_definition.scheduler[0].container_definitions)[0].stopTimeout == 30
    error_message = "a scheduler ends its passes and frees its shards"
  }
}

run "messages_are_kept_for_fourteen_days_everywhere" {
  assert {
    condition     = aws_sqs_queue.dead_letters.message_retention_seconds == 14 * 86400
    error_message = "dead letters too"
  }
}
