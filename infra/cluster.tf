# What all tasks share: cluster, network, logs, settings.

locals {
  with_services = !var.only_store
  with_api      = local.with_services && var.api_certificate_arn != null

  # The services that run as tasks. Operators start theirs by hand.
  task_services = toset(local.with_services ? concat(
    ["scheduler", "operator"],
    local.with_tasks ? ["worker"] : [],
    local.with_api ? ["api"] : [],
  ) : [])
  log_services = toset(local.with_services ? concat(tolist(local.task_services), local.with_function ? ["function"] : []) : [])

  images = { for service in ["scheduler", "worker", "api", "operator"] : service => lookup(var.image_overrides, service, var.image) }

  # All programs. Region and credentials are the platform's.
  settings = {
    PUNCTUAL_STORE_PREFIX = var.prefix
    PUNCTUAL_FAIR_QUEUES  = var.fair_queues ? "1" : "0"
    PUNCTUAL_LOG          = var.log_filter
    PUNCTUAL_LOG_FORMAT   = "json"
    PUNCTUAL_METRICS      = "emf"
  }

  # What every container is, merged with what differs.
  container = {
    essential              = true
    user                   = "65532:65532"
    readonlyRootFilesystem = true
    linuxParameters        = { capabilities = { drop = ["ALL"] } }
  }
  # Programs notice by themselves when nobody reads what they write: they go on, count the log lines that are lost, and tell their
  # figures later. A buffer in between would lose both in silence.
  log_configuration = {
    for service in local.task_services : service => {
      logDriver = "awslogs"
      options = {
        awslogs-group         = aws_cloudwatch_log_group.service[service].name
        awslogs-region        = var.region
        awslogs-stream-prefix = service
        mode                  = "blocking"
      }
    }
  }
}

resource "aws_ecs_cluster" "this" {
  count = local.with_services ? 1 : 0

  name = var.prefix

  setting {
    name  = "containerInsights"
    value = "enabled"
  }
}

resource "aws_cloudwatch_log_group" "service" {
  # checkov:skip=CKV_AWS_338:how long logs are kept is the adopter's choice, log_retention_days, 400 days by default
  # checkov:skip=CKV_AWS_158:the key is the adopter's choice, kms_key_arn; logs hold no payloads, numbers or secrets
  for_each = local.log_services

  name              = "/punctual/${var.prefix}/${each.key}"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.kms_key_arn
}

# Nobody connects to schedulers, workers and operators.
resource "aws_security_group" "task" {
  # checkov:skip=CKV2_AWS_5:each is attached to its service; the operator's to the tasks that are started by hand
  for_each = local.task_services

  name        = "${var.prefix}-${each.key}"
  description = "Tasks of Punctual: ${each.key}"
  vpc_id      = var.vpc_id
}

# AWS, gateways and webhooks. Workers judge each address themselves before they connect.
resource "aws_vpc_security_group_egress_rule" "https" {
  for_each = local.task_services

  security_group_id = aws_security_group.task[each.key].id
  description       = "AWS, gateways, webhooks"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

resource "aws_vpc_security_group_egress_rule" "extra" {
  for_each = {
    for pair in setproduct(local.task_services, var.extra_egress_ports) : "${pair[0]}-${pair[1]}" => { service = pair[0], port = pair[1] }
  }

  security_group_id = aws_security_group.task[each.value.service].id
  description       = "extra_egress_ports"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = each.value.port
  to_port           = each.value.port
}
