# The Jobs API: tasks behind an internal load balancer that speaks TLS, where a certificate is given. Keys are asked for by the API itself.
# A function URL with IAM authorisation is no alternative: its signature and the API's key are both in the header `Authorization`.

resource "aws_ecs_task_definition" "api" {
  count = local.with_api ? 1 : 0

  family                   = "${var.prefix}-api"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = 512
  memory                   = 1024
  execution_role_arn       = aws_iam_role.execution["api"].arn
  task_role_arn            = aws_iam_role.api[0].arn

  runtime_platform {
    cpu_architecture        = var.cpu_architecture
    operating_system_family = "LINUX"
  }

  container_definitions = jsonencode([merge(local.container, {
    name       = "api"
    image      = local.images["api"]
    entryPoint = ["/usr/local/bin/punctual"]
    command    = ["api"]
    environment = [
      for name, value in merge(
        local.settings,
        {
          PUNCTUAL_API_LISTEN             = "0.0.0.0:8080"
          PUNCTUAL_API_KEY_REQUESTS_PER_S = tostring(var.api_key_requests_per_s)
        },
        length(var.webhook_allow) == 0 ? {} : { PUNCTUAL_WEBHOOK_ALLOW = join(",", var.webhook_allow) },
      ) : { name = name, value = value }
    ]
    portMappings = [{ containerPort = 8080, protocol = "tcp" }]
    # Requests under way have 25 s, the last figures the rest.
    stopTimeout      = 40
    logConfiguration = local.log_configuration["api"]
  })])
}

resource "aws_ecs_service" "api" {
  count = local.with_api ? 1 : 0

  name                               = "api"
  cluster                            = aws_ecs_cluster.this[0].id
  task_definition                    = aws_ecs_task_definition.api[0].arn
  desired_count                      = var.running ? var.api_tasks : 0
  launch_type                        = "FARGATE"
  availability_zone_rebalancing      = "ENABLED"
  propagate_tags                     = "SERVICE"
  deployment_minimum_healthy_percent = 100
  deployment_maximum_percent         = 200
  health_check_grace_period_seconds  = 30

  network_configuration {
    subnets          = var.subnet_ids
    security_groups  = [aws_security_group.task["api"].id]
    assign_public_ip = false
  }

  load_balancer {
    target_group_arn = aws_lb_target_group.api[0].arn
    container_name   = "api"
    container_port   = 8080
  }

  deployment_circuit_breaker {
    enable   = true
    rollback = true
  }

  depends_on = [aws_lb_listener.api, aws_iam_role_policy.api, aws_iam_role_policy.execution, aws_iam_role_policy.key]
}

resource "aws_security_group" "api_balancer" {
  count = local.with_api ? 1 : 0

  name        = "${var.prefix}-api-balancer"
  description = "The load balancer of Punctual's API"
  vpc_id      = var.vpc_id
}

resource "aws_vpc_security_group_ingress_rule" "api_client" {
  for_each = local.with_api ? var.api_client_cidrs : toset([])

  security_group_id = aws_security_group.api_balancer[0].id
  description       = "api_client_cidrs"
  cidr_ipv4         = each.key
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

resource "aws_vpc_security_group_egress_rule" "api_balancer" {
  count = local.with_api ? 1 : 0

  security_group_id            = aws_security_group.api_balancer[0].id
  description                  = "The API's tasks"
  referenced_security_group_id = aws_security_group.task["api"].id
  ip_protocol                  = "tcp"
  from_port                    = 8080
  to_port                      = 8080
}

resource "aws_vpc_security_group_ingress_rule" "api" {
  count = local.with_api ? 1 : 0

  security_group_id            = aws_security_group.task["api"].id
  description                  = "The load balancer alone"
  referenced_security_group_id = aws_security_group.api_balancer[0].id
  ip_protocol                  = "tcp"
  from_port                    = 8080
  to_port                      = 8080
}

resource "aws_lb" "api" {
  # checkov:skip=CKV_AWS_150:it is protected in prod, and dev can be taken down
  # checkov:skip=CKV_AWS_91:access logs hold ids of jobs: whether they are kept is the adopter's choice, api_access_log_bucket
  count = local.with_api ? 1 : 0

  name                       = "${var.prefix}-api"
  internal                   = true
  load_balancer_type         = "application"
  security_groups            = [aws_security_group.api_balancer[0].id]
  subnets                    = var.subnet_ids
  drop_invalid_header_fields = true
  enable_deletion_protection = local.is_prod
  # An import answers line by line, and may think for a while.
  idle_timeout = 120

  dynamic "access_logs" {
    for_each = var.api_access_log_bucket[*]
    content {
      bucket  = access_logs.value
      prefix  = var.prefix
      enabled = true
    }
  }
}

resource "aws_lb_target_group" "api" {
  # checkov:skip=CKV_AWS_378:the API speaks HTTP; between load balancer and task is the VPC, and only the load balancer may connect
  count = local.with_api ? 1 : 0

  name                 = "${var.prefix}-api"
  port                 = 8080
  protocol             = "HTTP"
  target_type          = "ip"
  vpc_id               = var.vpc_id
  deregistration_delay = 30

  # Not /readyz: a store that is away is no reason to start all tasks anew.
  health_check {
    path                = "/healthz"
    matcher             = "200"
    interval            = 10
    timeout             = 5
    healthy_threshold   = 2
    unhealthy_threshold = 3
  }
}

resource "aws_lb_listener" "api" {
  count = local.with_api ? 1 : 0

  load_balancer_arn = aws_lb.api[0].arn
  port              = 443
  protocol          = "HTTPS"
  ssl_policy        = "ELBSecurityPolicy-TLS13-1-2-2021-06"
  certificate_arn   = var.api_certificate_arn

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.api[0].arn
  }
}
