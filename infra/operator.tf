# The operator's commands as a task that is started by hand: `setup`, `shards`, `cursors`, `audit`, and the others on the store. Not `keys
# add`: it prints the key, and what a task prints is in the logs.

resource "aws_ecs_task_definition" "operator" {
  count = local.with_services ? 1 : 0

  family                   = "${var.prefix}-operator"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = 256
  memory                   = 512
  execution_role_arn       = aws_iam_role.execution["operator"].arn
  task_role_arn            = aws_iam_role.operator[0].arn

  runtime_platform {
    cpu_architecture        = var.cpu_architecture
    operating_system_family = "LINUX"
  }

  container_definitions = jsonencode([merge(local.container, {
    name       = "operator"
    image      = local.images["operator"]
    entryPoint = ["/usr/local/bin/punctual"]
    command    = ["doctor"]
    environment = [
      for name, value in merge(
        local.settings,
        {
          PUNCTUAL_SETUP_URGENT_SHARDS   = tostring(var.shards.urgent)
          PUNCTUAL_SETUP_STANDARD_SHARDS = tostring(var.shards.standard)
          USER                           = "operator-task"
        },
        length(var.webhook_allow) == 0 ? {} : { PUNCTUAL_WEBHOOK_ALLOW = join(",", var.webhook_allow) },
      ) : { name = name, value = value }
    ]
    logConfiguration = local.log_configuration["operator"]
  })])
}
