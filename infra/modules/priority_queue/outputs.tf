output "arn" {
  description = "ARN of the queue."
  value       = aws_sqs_queue.this.arn
}

output "name" {
  description = "Name of the queue."
  value       = aws_sqs_queue.this.name
}

output "url" {
  description = "URL of the queue."
  value       = aws_sqs_queue.this.id
}
