output "table_arns" {
  description = "ARNs of the tables."
  value = {
    jobs    = aws_dynamodb_table.jobs.arn
    runs    = aws_dynamodb_table.runs.arn
    leases  = aws_dynamodb_table.leases.arn
    control = aws_dynamodb_table.control.arn
  }
}

output "queue_urls" {
  description = "URLs of the queues."
  value = merge(
    { for priority, queue in module.priority_queue : priority => queue.url },
    { dead_letters = aws_sqs_queue.dead_letters.id },
  )
}

output "visibility_s" {
  description = "Seconds for which the queues hide a message where its receiver names no other time: after a crash a function's run waits as long, a task's 60."
  value       = max([for queue in module.priority_queue : queue.visibility_s]...)
}

output "cluster" {
  description = "Name of the ECS cluster."
  value       = one(aws_ecs_cluster.this[*].name)
}

output "function" {
  description = "Name of the worker function, if there is one."
  value       = one(aws_lambda_function.worker[*].function_name)
}

output "operator_role_arn" {
  description = "ARN of the role in which operators work: taken by operator_principal_arns, and by the operator's task."
  value       = one(aws_iam_role.operator[*].arn)
}

output "api_dns_name" {
  description = "DNS name of the API's load balancer: point a name of the certificate at it. PUNCTUAL_API_URL is https:// and that name."
  value       = one(aws_lb.api[*].dns_name)
}

output "log_groups" {
  description = "Names of the log groups, by service."
  value       = { for service, group in aws_cloudwatch_log_group.service : service => group.name }
}

locals {
  operator_task = local.with_services ? join(" ", [
    "aws ecs run-task --region ${var.region} --cluster ${aws_ecs_cluster.this[0].name} --launch-type FARGATE",
    "--task-definition ${aws_ecs_task_definition.operator[0].family}",
    "--network-configuration 'awsvpcConfiguration={subnets=[${join(",", var.subnet_ids)}],securityGroups=[${aws_security_group.task["operator"].id}],assignPublicIp=DISABLED}'",
  ]) : null
}

output "setup_command" {
  description = "Once, before schedulers and workers run: makes the shards, and the heartbeat job, without which the alarm `heartbeat` never ends. What it said is in the operator's log group."
  value = local.operator_task == null ? null : "${local.operator_task} --overrides '${jsonencode({
    containerOverrides = [{ name = "operator", command = var.heartbeat ? ["setup", "--heartbeat"] : ["setup"] }]
  })}'"
}

output "operator_command" {
  description = "Runs another command of `punctual` as the operator: add --overrides '{\"containerOverrides\":[{\"name\":\"operator\",\"command\":[\"status\"]}]}'. Without it, `doctor`."
  value       = local.operator_task
}

output "restart_workers_command" {
  description = "After a secret was rotated: new worker tasks read it, old ones end in order."
  value       = local.worker_tasks_run ? "aws ecs update-service --region ${var.region} --cluster ${aws_ecs_cluster.this[0].name} --service ${aws_ecs_service.worker[0].name} --force-new-deployment" : null
}
