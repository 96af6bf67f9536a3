# What an installation is.

variable "prefix" {
  description = "First part of the names of everything, PUNCTUAL_STORE_PREFIX of all programs. 1 to 24 small letters, digits and hyphens: load balancers take no more."
  type        = string
  default     = "punctual"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]([a-z0-9-]{0,22}[a-z0-9])?$", var.prefix))
    error_message = "The prefix must be 1 to 24 small letters, digits and hyphens, begin with a letter and not end with a hyphen."
  }
}

variable "environment" {
  description = "`prod` protects what cannot be made again: tables and load balancer cannot be deleted, and what an installation must not go without is asked for. `dev` can be taken down."
  type        = string
  nullable    = false

  validation {
    condition     = contains(["dev", "prod"], var.environment)
    error_message = "The environment is dev or prod."
  }
}

variable "region" {
  description = "The AWS region of everything, such as eu-west-1."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]$", var.region))
    error_message = "The region must be one of AWS's, such as eu-west-1."
  }
}

variable "tags" {
  description = "Further tags of everything, at most 40."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = length(var.tags) <= 40
    error_message = "At most 40 tags: AWS takes 50, and this code sets some."
  }
}

variable "only_store" {
  description = "Make tables and queues only: for an emulator, or where the programs run elsewhere."
  type        = bool
  default     = false
  nullable    = false
}

variable "running" {
  description = "Whether schedulers, workers and API run. false stops them in order and loses nothing: before the first `punctual setup`, and while a table is restored."
  type        = bool
  default     = true
  nullable    = false
}

variable "local_endpoint" {
  description = "Address of an emulator of DynamoDB and SQS, such as http://127.0.0.1:4566; null for AWS. Only with only_store."
  type        = string
  default     = null

  validation {
    condition     = var.local_endpoint == null || can(regex("^https?://[^/]+$", var.local_endpoint))
    error_message = "The endpoint must be an address without a path, such as http://127.0.0.1:4566."
  }
  validation {
    condition     = var.local_endpoint == null || var.only_store
    error_message = "An emulator has tables and queues only: set only_store = true."
  }
}

variable "kms_key_arn" {
  description = "ARN of the KMS key for tables, queues and logs; its policy must let CloudWatch Logs use it. null: the key that AWS manages for DynamoDB, SQS's own encryption, and that of CloudWatch Logs."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/.+$", var.kms_key_arn))
    error_message = "The key must be given by its ARN, arn:aws:kms:REGION:ACCOUNT:key/ID, not by an alias."
  }
}

variable "log_retention_days" {
  description = "Days for which logs are kept: one of CloudWatch's numbers, 1 to 3653."
  type        = number
  default     = 400
  nullable    = false

  validation {
    condition = contains(
      [1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653],
      var.log_retention_days
    )
    error_message = "CloudWatch keeps logs for 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288 or 3653 days."
  }
  validation {
    condition     = var.environment != "prod" || var.log_retention_days >= 90
    error_message = "In prod logs are kept for 90 days at least: rows are kept for 60, and somebody will ask."
  }
}

variable "log_filter" {
  description = "PUNCTUAL_LOG of all programs: a level (error, warn, info, debug), or levels by module."
  type        = string
  default     = "info"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9_:=,]+$", var.log_filter))
    error_message = "The filter is a level such as info, or modules and levels such as info,punctual_worker=debug."
  }
}

# Where it runs.

variable "vpc_id" {
  description = "The VPC of the tasks. Needed unless only_store."
  type        = string
  default     = null

  validation {
    condition     = var.only_store || can(regex("^vpc-[0-9a-z]+$", var.vpc_id))
    error_message = "Tasks need a VPC: vpc_id = \"vpc-…\"."
  }
}

variable "subnet_ids" {
  description = "Private subnets of the tasks, 2 to 16, each in a zone of its own, with a way to DynamoDB, SQS, CloudWatch Logs, the registry of the image and the gateways (NAT or VPC endpoints). Three zones in prod."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition = var.only_store || (
      length(var.subnet_ids) >= 2 && length(var.subnet_ids) <= 16 && alltrue([for id in var.subnet_ids : can(regex("^subnet-[0-9a-z]+$", id))])
    )
    error_message = "Tasks need 2 to 16 subnets, subnet-…, each in a zone of its own."
  }
  validation {
    condition     = var.environment != "prod" || var.only_store || length(distinct(var.subnet_ids)) >= 3
    error_message = "In prod tasks are spread over three zones: give three subnets."
  }
}

variable "extra_egress_ports" {
  description = "TCP ports beside 443 to which tasks may connect: those of a mail server (465, 587), of a collector of traces (4318), or of receivers on other ports. 1 to 65535."
  type        = set(number)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for port in var.extra_egress_ports : port >= 1 && port <= 65535 && floor(port) == port && port != 443])
    error_message = "Ports are whole numbers from 1 to 65535; 443 is open already."
  }
}

variable "image" {
  description = "The container image, which holds /usr/local/bin/punctual and /usr/local/bin/punctual-worker, by digest or by a tag that never moves. Needed unless only_store."
  type        = string
  default     = null

  validation {
    condition     = var.only_store || can(regex("^[a-z0-9.-]+(:[0-9]+)?/[a-z0-9._/-]+(@sha256:[0-9a-f]{64}|:[A-Za-z0-9._-]+)$", var.image))
    error_message = "The image must be REGISTRY/NAME@sha256:DIGEST, or REGISTRY/NAME:TAG."
  }
  validation {
    condition     = var.only_store || !can(regex(":latest$", var.image))
    error_message = "The tag latest moves: tasks that start later would run something else."
  }
  validation {
    condition     = var.only_store || var.environment != "prod" || can(regex("@sha256:", var.image))
    error_message = "In prod the image is given by its digest, …@sha256:…."
  }
}

variable "image_overrides" {
  description = "Other images for some of scheduler, worker, api and operator: to bring a new version to workers first, then to schedulers, then to the API."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for service in keys(var.image_overrides) : contains(["scheduler", "worker", "api", "operator"], service)])
    error_message = "Images are those of scheduler, worker, api and operator."
  }
  validation {
    condition = alltrue([
      for image in values(var.image_overrides) : can(regex("^[a-z0-9.-]+(:[0-9]+)?/[a-z0-9._/-]+(@sha256:[0-9a-f]{64}|:[A-Za-z0-9._-]+)$", image)) && !can(regex(":latest$", image))
    ])
    error_message = "An image must be REGISTRY/NAME@sha256:DIGEST, or REGISTRY/NAME:TAG with a tag other than latest."
  }
}

variable "cpu_architecture" {
  description = "Processors of tasks and function, those for which image and package were built: ARM64 or X86_64."
  type        = string
  default     = "ARM64"
  nullable    = false

  validation {
    condition     = contains(["ARM64", "X86_64"], var.cpu_architecture)
    error_message = "The architecture is ARM64 or X86_64."
  }
}

# Tables.

variable "warm_throughput" {
  description = "Reads and writes a second for which tables and indexes are kept warm: jobs, due (index of jobs), runs. Charged once, cannot be lowered again; at least 12000 and 4000, up to the account's quota. docs/scale.md says what a burst needs."
  type = object({
    jobs = optional(object({ reads_per_s = number, writes_per_s = number }))
    due  = optional(object({ reads_per_s = number, writes_per_s = number }))
    runs = optional(object({ reads_per_s = number, writes_per_s = number }))
  })
  default  = {}
  nullable = false

  validation {
    condition = alltrue([
      for warm in [var.warm_throughput.jobs, var.warm_throughput.due, var.warm_throughput.runs] :
      warm == null ? true : warm.reads_per_s >= 12000 && warm.writes_per_s >= 4000
    ])
    error_message = "New tables and indexes are warm for 12000 reads and 4000 writes a second: ask for at least that."
  }
}

# Schedulers.

variable "scheduler_tasks" {
  description = "Scheduler copies, 1 to 64; three at least in prod, so that one can go at any time. docs/scale.md says how many a burst needs."
  type        = number
  default     = 3
  nullable    = false

  validation {
    condition     = var.scheduler_tasks >= 1 && var.scheduler_tasks <= 64 && floor(var.scheduler_tasks) == var.scheduler_tasks
    error_message = "There are 1 to 64 scheduler copies."
  }
  validation {
    condition     = var.environment != "prod" || var.scheduler_tasks >= 3
    error_message = "In prod there are three scheduler copies at least."
  }
}

variable "scheduler_size" {
  description = "What a scheduler task has: cpu in units of 1/1024 of a processor (256 to 16384), memory_mib in MiB (512 to 122880), in one of Fargate's combinations."
  type        = object({ cpu = number, memory_mib = number })
  default     = { cpu = 1024, memory_mib = 2048 }
  nullable    = false

  validation {
    condition     = contains([256, 512, 1024, 2048, 4096, 8192, 16384], var.scheduler_size.cpu) && var.scheduler_size.memory_mib >= var.scheduler_size.cpu * 2 && var.scheduler_size.memory_mib <= 122880
    error_message = "Fargate has 256, 512, 1024, 2048, 4096, 8192 and 16384 units of processor, and for each at least twice as many MiB."
  }
}

variable "shards" {
  description = "Slices of the timetable that the first setup makes: urgent 1 to 512, standard 1 to 4096. After `punctual shards grow` set them to what it printed: an alarm counts them."
  type        = object({ urgent = number, standard = number })
  default     = { urgent = 8, standard = 24 }
  nullable    = false

  validation {
    condition     = var.shards.urgent >= 1 && var.shards.urgent <= 512 && var.shards.standard >= 1 && var.shards.standard <= 4096
    error_message = "There are 1 to 512 urgent and 1 to 4096 standard shards."
  }
}

variable "scheduler_settings" {
  description = "Further settings of schedulers by their names, PUNCTUAL_DISPATCH_…, PUNCTUAL_TRACES or OTEL_…; nothing secret."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for name in keys(var.scheduler_settings) : can(regex("^(PUNCTUAL_DISPATCH_[A-Z_]+|PUNCTUAL_TRACES|OTEL_[A-Z_]+)$", name))])
    error_message = "Settings of schedulers are PUNCTUAL_DISPATCH_…, PUNCTUAL_TRACES and OTEL_…: the others have variables of their own."
  }
}

variable "fair_queues" {
  description = "Whether messages carry their tenant as SQS's message group, so that one tenant's backlog does not hold up others (PUNCTUAL_FAIR_QUEUES of all programs)."
  type        = bool
  default     = true
  nullable    = false
}

# Workers.

variable "worker_runtime" {
  description = "What workers run as: `ecs` (tasks), `lambda` (a function), or `both`. Both share the limits by fixed parts; it is meant for moving from one to the other."
  type        = string
  default     = "ecs"
  nullable    = false

  validation {
    condition     = contains(["lambda", "ecs", "both"], var.worker_runtime)
    error_message = "Workers run as lambda, ecs or both."
  }
  validation {
    condition     = var.only_store || var.worker_runtime == "ecs" || var.worker_package != null
    error_message = "The function needs its package: worker_package = { bucket, key, version }."
  }
}

variable "attempt_timeout_s" {
  description = "Seconds after which an unanswered call counts as unknown, 1 to 900 (PUNCTUAL_WORK_ATTEMPT_TIMEOUT_S)."
  type        = number
  default     = 10
  nullable    = false

  validation {
    condition     = var.attempt_timeout_s >= 1 && var.attempt_timeout_s <= 900 && floor(var.attempt_timeout_s) == var.attempt_timeout_s
    error_message = "An attempt takes at most 1 to 900 whole seconds."
  }
}

variable "worker_slots" {
  description = "Calls under way at once in one worker, 1 to 1000 (PUNCTUAL_WORK_SLOTS); twice as many messages are held."
  type        = number
  default     = 20
  nullable    = false

  validation {
    condition     = var.worker_slots >= 1 && var.worker_slots <= 500 && floor(var.worker_slots) == var.worker_slots
    error_message = "A worker has 1 to 500 slots: it holds twice as many messages, and at most 1000."
  }
}

variable "worker_settings" {
  description = "Further settings of workers by their names: what becomes of repeats (PUNCTUAL_SMS_DEDUPE_WINDOW_S, …), PUNCTUAL_WORK_…, PUNCTUAL_TRACES, OTEL_…; nothing secret."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition = alltrue([
      for name in keys(var.worker_settings) :
      can(regex("^(PUNCTUAL_(SMS|EMAIL|WEBHOOK|QUEUE)_(DEDUPE_WINDOW_S|ON_UNKNOWN|ON_TAKEOVER)|PUNCTUAL_WORK_[A-Z_]+|PUNCTUAL_TRACES|OTEL_[A-Z_]+)$", name))
    ])
    error_message = "Settings of workers are PUNCTUAL_{SMS,EMAIL,WEBHOOK,QUEUE}_{DEDUPE_WINDOW_S,ON_UNKNOWN,ON_TAKEOVER}, PUNCTUAL_WORK_…, PUNCTUAL_TRACES and OTEL_…: the others have variables of their own."
  }
  validation {
    condition = length(setintersection(keys(var.worker_settings), [
      "PUNCTUAL_WORK_ATTEMPT_TIMEOUT_S", "PUNCTUAL_WORK_SLOTS", "PUNCTUAL_WORK_PREFETCH", "PUNCTUAL_WORK_STOP_S",
      "PUNCTUAL_WORK_MAX_CONCURRENCY", "PUNCTUAL_WORK_ALIVE_FILE"
    ])) == 0
    error_message = "Attempt timeout, slots, prefetch, stop time, concurrency and alive file follow from other variables."
  }
}

variable "sms_url_secret_arn" {
  description = "ARN of the Secrets Manager secret whose text is the address of the SMS gateway, its key included (PUNCTUAL_SMS_URL). null: text messages wait for workers that have one."
  type        = string
  default     = null

  validation {
    condition     = var.sms_url_secret_arn == null || can(regex("^arn:[a-z-]+:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:.+$", var.sms_url_secret_arn))
    error_message = "The secret must be given by its ARN, arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME."
  }
  validation {
    condition     = var.sms_url_secret_arn == null || var.worker_runtime == "ecs"
    error_message = "The function cannot read secrets: send text messages from tasks, worker_runtime = \"ecs\"."
  }
}

variable "smtp_url_secret_arn" {
  description = "ARN of the Secrets Manager secret whose text is the address of the mail server with user and password (PUNCTUAL_SMTP_URL). null: emails wait for workers that have one. Open its port by extra_egress_ports."
  type        = string
  default     = null

  validation {
    condition     = var.smtp_url_secret_arn == null || can(regex("^arn:[a-z-]+:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:.+$", var.smtp_url_secret_arn))
    error_message = "The secret must be given by its ARN, arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME."
  }
  validation {
    condition     = var.smtp_url_secret_arn == null || var.worker_runtime == "ecs"
    error_message = "The function cannot read secrets: send emails from tasks, worker_runtime = \"ecs\"."
  }
  validation {
    condition     = (var.smtp_url_secret_arn == null) == (var.email_from == null)
    error_message = "The mail server and whom emails are from belong together: give smtp_url_secret_arn and email_from, or neither."
  }
}

variable "secrets_kms_key_arn" {
  description = "ARN of the KMS key of these secrets, if they have one of their own."
  type        = string
  default     = null

  validation {
    condition     = var.secrets_kms_key_arn == null || can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/.+$", var.secrets_kms_key_arn))
    error_message = "The key must be given by its ARN, arn:aws:kms:REGION:ACCOUNT:key/ID, not by an alias."
  }
}

variable "email_from" {
  description = "Whom emails are from, such as bills@example.com (PUNCTUAL_EMAIL_FROM)."
  type        = string
  default     = null

  validation {
    condition     = var.email_from == null || can(regex("@", var.email_from))
    error_message = "Emails are from an address, such as bills@example.com."
  }
}

variable "webhook_allow" {
  description = "Hosts that webhooks and queues may name whatever their addresses are, also over plain HTTP: host, address or host:port (PUNCTUAL_WEBHOOK_ALLOW of workers and API)."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for host in var.webhook_allow : can(regex("^[A-Za-z0-9._:\\[\\]-]+$", host))])
    error_message = "An exception is a host, an address, or host:port, without a scheme or a path."
  }
}

variable "receiver_queue_arns" {
  description = "ARNs of the queues to which the `queue` handler may send. Those of the installation itself are refused by the worker."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for arn in var.receiver_queue_arns : can(regex("^arn:[a-z-]+:sqs:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+$", arn))])
    error_message = "Queues are given by their ARNs, arn:aws:sqs:REGION:ACCOUNT:NAME, without wildcards; FIFO queues are not sent to."
  }
}

# Workers as tasks.

variable "worker_tasks" {
  description = "Least and most worker tasks, 1 to 60: a limit has 60 shares, and a worker without one sends nothing."
  type        = object({ min = number, max = number })
  default     = { min = 2, max = 10 }
  nullable    = false

  validation {
    condition     = var.worker_tasks.min >= 1 && var.worker_tasks.max >= var.worker_tasks.min && var.worker_tasks.max <= 60
    error_message = "There are 1 to 60 worker tasks, and the least is not above the most."
  }
  validation {
    condition     = var.environment != "prod" || var.worker_tasks.min >= 2
    error_message = "In prod there are two worker tasks at least."
  }
}

variable "worker_size" {
  description = "What a worker task has: cpu in units of 1/1024 of a processor (256 to 16384), memory_mib in MiB (512 to 122880), in one of Fargate's combinations."
  type        = object({ cpu = number, memory_mib = number })
  default     = { cpu = 512, memory_mib = 1024 }
  nullable    = false

  validation {
    condition     = contains([256, 512, 1024, 2048, 4096, 8192, 16384], var.worker_size.cpu) && var.worker_size.memory_mib >= var.worker_size.cpu * 2 && var.worker_size.memory_mib <= 122880
    error_message = "Fargate has 256, 512, 1024, 2048, 4096, 8192 and 16384 units of processor, and for each at least twice as many MiB."
  }
}

variable "worker_stop_s" {
  description = "Seconds in which a worker task finishes its calls when it is told to stop: at least attempt_timeout_s + 5, at most 105 (PUNCTUAL_WORK_STOP_S)."
  type        = number
  default     = 25
  nullable    = false

  validation {
    condition     = var.worker_stop_s <= 105 && floor(var.worker_stop_s) == var.worker_stop_s
    error_message = "Fargate waits 120 seconds at most, and 15 of them are for the last calls to the queue: 105 are left."
  }
  validation {
    condition     = var.worker_runtime == "lambda" || var.worker_stop_s >= var.attempt_timeout_s + 5
    error_message = "A worker needs attempt_timeout_s and 5 seconds to finish a call and record it."
  }
}

variable "worker_scaling" {
  description = "When worker tasks are added: more than messages waiting in all queues, or an oldest one older than age_s seconds in the urgent or normal queue. They go one by one when a tenth of either was not reached for 15 minutes."
  type        = object({ messages = number, age_s = number })
  default     = { messages = 5000, age_s = 60 }
  nullable    = false

  validation {
    condition     = var.worker_scaling.messages >= 10 && var.worker_scaling.age_s >= 10
    error_message = "Workers are added from 10 messages or 10 seconds on."
  }
}

# Workers as a function.

variable "worker_package" {
  description = "The function's package in S3, a zip with the worker as `bootstrap`: bucket, key, and version of the object, by which a change is seen."
  type        = object({ bucket = string, key = string, version = string })
  default     = null

  validation {
    condition     = var.worker_package == null ? true : var.worker_package.bucket != "" && var.worker_package.key != "" && var.worker_package.version != ""
    error_message = "The package needs bucket, key and version: keep versions in the bucket."
  }
}

variable "lambda_timeout_s" {
  description = "Seconds for which the function may run, 10 to 900: more than attempt_timeout_s + 6. Queues hide messages for six times as long, and so long a run of a crashed function waits."
  type        = number
  default     = 60
  nullable    = false

  validation {
    condition     = var.lambda_timeout_s >= 10 && var.lambda_timeout_s <= 900 && floor(var.lambda_timeout_s) == var.lambda_timeout_s
    error_message = "A function may run for 10 to 900 whole seconds."
  }
  validation {
    condition     = var.worker_runtime == "ecs" || var.lambda_timeout_s > var.attempt_timeout_s + 6
    error_message = "The function begins no call that could not end, be recorded and be answered in time: its timeout must be longer than attempt_timeout_s and 6 seconds."
  }
}

variable "lambda_memory_mib" {
  description = "Memory of the function in MiB, 128 to 10240; its processor is in proportion (1769 MiB are one)."
  type        = number
  default     = 512
  nullable    = false

  validation {
    condition     = var.lambda_memory_mib >= 128 && var.lambda_memory_mib <= 10240
    error_message = "A function has 128 to 10240 MiB."
  }
}

variable "lambda_max_concurrency" {
  description = "Functions that run at once, 20 to 1000, a multiple of 10: 6/10 for urgent, 3/10 for normal, 1/10 for bulk. Limits of calls are cut into as many fixed parts, and reserved of the account's concurrency."
  type        = number
  default     = 20
  nullable    = false

  validation {
    condition     = var.lambda_max_concurrency >= 20 && var.lambda_max_concurrency <= 1000 && var.lambda_max_concurrency % 10 == 0
    error_message = "The concurrency is a multiple of 10 from 20 to 1000: Lambda takes 2 at least for each queue."
  }
}

# The Jobs API.

variable "api_certificate_arn" {
  description = "ARN of the ACM certificate of the API's internal load balancer. null: no API; commands work on the store, in the operator's role."
  type        = string
  default     = null

  validation {
    condition     = var.api_certificate_arn == null || can(regex("^arn:[a-z-]+:acm:[a-z0-9-]+:[0-9]{12}:certificate/.+$", var.api_certificate_arn))
    error_message = "The certificate must be given by its ARN, arn:aws:acm:REGION:ACCOUNT:certificate/ID."
  }
}

variable "api_client_cidrs" {
  description = "IPv4 networks that may call the API, such as 10.0.0.0/16; not the whole Internet."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for cidr in var.api_client_cidrs : can(cidrhost(cidr, 0)) && !endswith(cidr, "/0")])
    error_message = "Clients are IPv4 networks such as 10.0.0.0/16, and not everybody."
  }
  validation {
    condition     = var.api_certificate_arn == null || length(var.api_client_cidrs) > 0
    error_message = "Say who may call the API: api_client_cidrs."
  }
}

variable "api_tasks" {
  description = "API tasks, 1 to 64; two at least in prod."
  type        = number
  default     = 2
  nullable    = false

  validation {
    condition     = var.api_tasks >= 1 && var.api_tasks <= 64 && floor(var.api_tasks) == var.api_tasks
    error_message = "There are 1 to 64 API tasks."
  }
  validation {
    condition     = var.environment != "prod" || var.api_tasks >= 2
    error_message = "In prod there are two API tasks at least."
  }
}

variable "api_key_requests_per_s" {
  description = "Requests a second that one key is good for in each API task, 1 to 100000 (PUNCTUAL_API_KEY_REQUESTS_PER_S)."
  type        = number
  default     = 500
  nullable    = false

  validation {
    condition     = var.api_key_requests_per_s >= 1 && var.api_key_requests_per_s <= 100000
    error_message = "A key is good for 1 to 100000 requests a second."
  }
}

variable "api_access_log_bucket" {
  description = "S3 bucket for the load balancer's access logs, which hold addresses and so ids of jobs; null: none are kept."
  type        = string
  default     = null

  validation {
    condition     = var.api_access_log_bucket == null || can(regex("^[a-z0-9.-]{3,63}$", var.api_access_log_bucket))
    error_message = "The bucket is given by its name."
  }
}

# Operators and alarms.

variable "operator_principal_arns" {
  description = "ARNs of the IAM roles or users that may take the operator's role, in which commands work on the store from a machine of theirs."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for arn in var.operator_principal_arns : can(regex("^arn:[a-z-]+:iam::[0-9]{12}:(role|user)/[^*]+$", arn))])
    error_message = "Operators are given by the ARNs of their roles or users, arn:aws:iam::ACCOUNT:role/NAME, without wildcards."
  }
}

variable "alarm_actions" {
  description = "ARNs of what is told of alarms and of their end, such as SNS topics; 0 to 5, at least one in prod."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = length(var.alarm_actions) <= 5 && alltrue([for arn in var.alarm_actions : can(regex("^arn:[a-z-]+:", arn))])
    error_message = "Alarms tell 0 to 5 actions, given by their ARNs."
  }
  validation {
    condition     = var.environment != "prod" || var.only_store || length(var.alarm_actions) > 0
    error_message = "In prod somebody is told of alarms: give alarm_actions."
  }
}

variable "runbook_url" {
  description = "Where docs/operations.md is read; alarms name a section of it."
  type        = string
  default     = "docs/operations.md"
  nullable    = false

  validation {
    condition     = var.runbook_url != "" && !can(regex("[#\\s]", var.runbook_url))
    error_message = "The address of the guide has no `#`: each alarm adds its own section."
  }
}

variable "heartbeat" {
  description = "Whether there is an alarm on the heartbeat, the job of `punctual setup --heartbeat`: without that job it never ends."
  type        = bool
  default     = true
  nullable    = false
}

variable "backlog_alarm_messages" {
  description = "Messages in one queue that are a backlog: what the workers do in five minutes. At least 1; 450 a second for five minutes are 135000."
  type        = number
  default     = 135000
  nullable    = false

  validation {
    condition     = var.backlog_alarm_messages >= 1
    error_message = "A backlog has one message at least."
  }
}

variable "oldest_message_alarm_s" {
  description = "Age in seconds of a queue's oldest message from which on somebody is told, at least 60, for each priority."
  type        = object({ urgent = number, normal = number, bulk = number })
  default     = { urgent = 120, normal = 1800, bulk = 14400 }
  nullable    = false

  validation {
    condition     = alltrue([for age_s in values(var.oldest_message_alarm_s) : age_s >= 60])
    error_message = "SQS tells ages each minute: thresholds are 60 seconds at least."
  }
}
