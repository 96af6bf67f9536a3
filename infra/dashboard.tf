# What an operator looks at; the body is held against the table of metrics by a test of the core.

resource "aws_cloudwatch_dashboard" "this" {
  count = local.with_services ? 1 : 0

  dashboard_name = var.prefix
  dashboard_body = templatefile("${path.module}/dashboards/cloudwatch.json", { region = var.region })
}
