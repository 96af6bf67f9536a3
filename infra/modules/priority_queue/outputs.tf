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

output "visibility_s" {
  description = "Seconds for which a message is hidden where its receiver names no other time."
  value       = aws_sqs_queue.this.visibility_timeout_seconds
}
