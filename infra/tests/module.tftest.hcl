# The module of a priority queue, by itself.

variables {
  prefix           = "punctual"
  priority         = "urgent"
  visibility_s     = 60
  dead_letters_arn = "arn:aws:sqs:eu-west-1:123456789012:punctual-dead-letters"
}

run "a_queue_keeps_what_it_is_given" {
  module {
    source = "./modules/priority_queue"
  }

  assert {
    condition     = aws_sqs_queue.this.name == "punctual-urgent" && aws_sqs_queue.this.message_retention_seconds == 14 * 86400 && aws_sqs_queue.this.sqs_managed_sse_enabled
    error_message = "name, retention and encryption"
  }
  assert {
    condition     = jsondecode(aws_sqs_queue.this.redrive_policy) == { deadLetterTargetArn = "arn:aws:sqs:eu-west-1:123456789012:punctual-dead-letters", maxReceiveCount = 1000 }
    error_message = "SQS moves a message only as a net"
  }
  assert {
    condition     = aws_cloudwatch_metric_alarm.oldest_message[0].dimensions == tomap({ QueueName = "punctual-urgent" })
    error_message = "somebody is told of messages that wait"
  }
}

run "a_key_of_ones_own_takes_the_place_of_sqss" {
  module {
    source = "./modules/priority_queue"
  }
  variables {
    kms_key_arn = "arn:aws:kms:eu-west-1:123456789012:key/01234567-89ab-cdef-0123-456789abcdef"
  }

  assert {
    condition     = aws_sqs_queue.this.kms_master_key_id == "arn:aws:kms:eu-west-1:123456789012:key/01234567-89ab-cdef-0123-456789abcdef"
    error_message = "the key that is given"
  }
}

run "a_fourth_priority_is_refused" {
  command = plan
  module {
    source = "./modules/priority_queue"
  }
  variables {
    priority = "slow"
  }
  expect_failures = [var.priority]
}
