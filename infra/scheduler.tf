# Scheduler copies: always tasks, spread over the zones of the subnets. They share the timetable by lease, so copies may come and go.

resource "aws_ecs_task_definition" "scheduler" {
  count = local.with_services ? 1 : 0

  family                   = "${var.prefix}-scheduler"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = var.scheduler_size.cpu
  memory                   = var.scheduler_size.memory_mib
  execution_role_arn       = aws_iam_role.execution["scheduler"].arn
  task_role_arn            = aws_iam_role.scheduler[0].arn

  runtime_platform {
    cpu_architecture        = var.cpu_architecture
    operating_system_family = "LINUX"
  }

  container_definitions = jsonencode([merge(local.container, {
    name       = "scheduler"
    image      = local.images["scheduler"]
    entryPoint = ["/usr/local/bin/punctual"]
    command    = ["dispatch"]
    environment = [for name, value in merge(var.scheduler_settings, local.settings) : {
      name  = name
      value = value
    }]
    # A copy that stops ends its passes and sends (11 s), frees its shards (5 s) and tells its last figures.
    stopTimeout      = 30
    logConfiguration = local.log_configuration["scheduler"]
  })])
}

resource "aws_ecs_service" "scheduler" {
  count = local.with_services ? 1 : 0

  name                               = "scheduler"
  cluster                            = aws_ecs_cluster.this[0].id
  task_definition                    = aws_ecs_task_definition.scheduler[0].arn
  desired_count                      = var.running ? var.scheduler_tasks : 0
  launch_type                        = "FARGATE"
  availability_zone_rebalancing      = "ENABLED"
  propagate_tags                     = "SERVICE"
  deployment_minimum_healthy_percent = 100
  deployment_maximum_percent         = 200

  network_configuration {
    subnets          = var.subnet_ids
    security_groups  = [aws_security_group.task["scheduler"].id]
    assign_public_ip = false
  }

  deployment_circuit_breaker {
    enable   = true
    rollback = true
  }

  # A task without its rights ends at once, and three that do end the deployment.
  depends_on = [aws_iam_role_policy.scheduler, aws_iam_role_policy.execution, aws_iam_role_policy.key]
}
