variable "prefix" {
  description = "First part of the queue's name, 1 to 40 letters, digits, `-` and `_`."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9_-]{1,40}$", var.prefix))
    error_message = "The prefix must be 1 to 40 letters, digits, hyphens and underscores."
  }
}

variable "priority" {
  description = "Which priority: urgent, normal or bulk."
  type        = string
  nullable    = false

  validation {
    condition     = contains(["urgent", "normal", "bulk"], var.priority)
    error_message = "Priorities are urgent, normal and bulk."
  }
}

variable "visibility_s" {
  description = "Seconds for which a received message is hidden where its receiver names no other time, 30 to 43200: six times a function's timeout."
  type        = number
  nullable    = false

  validation {
    condition     = var.visibility_s >= 30 && var.visibility_s <= 43200 && floor(var.visibility_s) == var.visibility_s
    error_message = "Messages are hidden for 30 to 43200 whole seconds."
  }
}

variable "dead_letters_arn" {
  description = "ARN of the queue of dead letters."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^arn:", var.dead_letters_arn))
    error_message = "The dead letters are given by their ARN."
  }
}

variable "kms_key_arn" {
  description = "ARN of the KMS key; null for SQS's own encryption."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:[a-z-]+:kms:", var.kms_key_arn))
    error_message = "The key is given by its ARN."
  }
}

variable "with_alarms" {
  description = "Whether there are alarms on the queue."
  type        = bool
  default     = true
  nullable    = false
}

variable "alarms_act" {
  description = "Whether alarms tell anybody: not while the installation is stopped on purpose."
  type        = bool
  default     = true
  nullable    = false
}

variable "alarm_actions" {
  description = "ARNs of what is told of alarms, 0 to 5."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = length(var.alarm_actions) <= 5
    error_message = "Alarms tell at most 5 actions."
  }
}

variable "runbook_url" {
  description = "Where docs/operations.md is read."
  type        = string
  default     = "docs/operations.md"
  nullable    = false

  validation {
    condition     = var.runbook_url != ""
    error_message = "Alarms name a section of the guide: say where it is."
  }
}

variable "backlog_alarm_messages" {
  description = "Messages that wait for ten minutes and are a backlog, at least 1."
  type        = number
  default     = 135000
  nullable    = false

  validation {
    condition     = var.backlog_alarm_messages >= 1
    error_message = "A backlog has one message at least."
  }
}

variable "oldest_message_alarm_s" {
  description = "Age in seconds of the oldest message from which on somebody is told, at least 60."
  type        = number
  default     = 1800
  nullable    = false

  validation {
    condition     = var.oldest_message_alarm_s >= 60
    error_message = "SQS tells ages each minute: the threshold is 60 seconds at least."
  }
}
