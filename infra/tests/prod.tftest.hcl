# What protects an installation that somebody relies on, and what it must not go without.

variables {
  environment   = "prod"
  region        = "eu-west-1"
  vpc_id        = "vpc-0123456789abcdef0"
  subnet_ids    = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1", "subnet-0123456789abcdef2"]
  image         = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/punctual@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  alarm_actions = ["arn:aws:sns:eu-west-1:123456789012:on-call"]
}

run "tables_cannot_be_deleted_and_can_be_restored" {
  variables {
    api_certificate_arn = "arn:aws:acm:eu-west-1:123456789012:certificate/01234567-89ab-cdef-0123-456789abcdef"
    api_client_cidrs    = ["10.0.0.0/16"]
  }

  assert {
    condition = alltrue([
      for table in [aws_dynamodb_table.jobs, aws_dynamodb_table.runs, aws_dynamodb_table.leases, aws_dynamodb_table.control] :
      table.deletion_protection_enabled && table.point_in_time_recovery[0].enabled && table.server_side_encryption[0].enabled
    ])
    error_message = "in prod all tables are protected, restorable and encrypted"
  }
  assert {
    condition     = aws_lb.api[0].enable_deletion_protection
    error_message = "the load balancer is protected too"
  }
  assert {
    condition     = aws_ecs_service.scheduler[0].desired_count == 3 && length(aws_ecs_service.scheduler[0].network_configuration[0].subnets) == 3
    error_message = "three copies over three zones"
  }
  assert {
    condition = alltrue([
      for service in [aws_ecs_service.scheduler[0], aws_ecs_service.worker[0], aws_ecs_service.api[0]] :
      service.deployment_circuit_breaker[0].enable && service.deployment_circuit_breaker[0].rollback && service.deployment_minimum_healthy_percent == 100 &&
      !service.network_configuration[0].assign_public_ip
    ])
    error_message = "a bad deployment is rolled back, and takes nobody away before"
  }
  assert {
    condition     = alltrue([for alarm in aws_cloudwatch_metric_alarm.simple : alarm.alarm_actions == toset(["arn:aws:sns:eu-west-1:123456789012:on-call"])])
    error_message = "somebody is told of every alarm"
  }
}

run "dev_can_be_taken_down" {
  variables {
    environment = "dev"
  }

  assert {
    condition     = !aws_dynamodb_table.jobs.deletion_protection_enabled && aws_dynamodb_table.jobs.point_in_time_recovery[0].enabled
    error_message = "in dev tables can be deleted, and are restorable all the same"
  }
}

run "two_copies_are_too_few" {
  command = plan
  variables {
    scheduler_tasks = 2
  }
  expect_failures = [var.scheduler_tasks]
}

run "one_worker_is_too_few" {
  command = plan
  variables {
    worker_tasks = { min = 1, max = 3 }
  }
  expect_failures = [var.worker_tasks]
}

run "two_zones_are_too_few" {
  command = plan
  variables {
    subnet_ids = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
  }
  expect_failures = [var.subnet_ids]
}

run "alarms_that_nobody_hears_are_refused" {
  command = plan
  variables {
    alarm_actions = []
  }
  expect_failures = [var.alarm_actions]
}

run "a_tag_may_move" {
  command = plan
  variables {
    image = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/punctual:0.1.0"
  }
  expect_failures = [var.image]
}

run "short_logs_are_refused" {
  command = plan
  variables {
    log_retention_days = 14
  }
  expect_failures = [var.log_retention_days]
}

run "the_api_is_not_open_to_everybody" {
  command = plan
  variables {
    api_certificate_arn = "arn:aws:acm:eu-west-1:123456789012:certificate/01234567-89ab-cdef-0123-456789abcdef"
    api_client_cidrs    = ["0.0.0.0/0"]
  }
  expect_failures = [var.api_client_cidrs]
}
