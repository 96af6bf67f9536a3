# A small installation that can be taken down again. Put your own in place of the names of VPC, subnets and image.
environment        = "dev"
region             = "eu-west-1"
prefix             = "punctual-dev"
vpc_id             = "vpc-0123456789abcdef0"
subnet_ids         = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
image              = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/punctual:0.1.0"
log_retention_days = 14
scheduler_tasks    = 2
scheduler_size     = { cpu = 256, memory_mib = 512 }
worker_tasks       = { min = 1, max = 3 }
worker_size        = { cpu = 256, memory_mib = 512 }
worker_runtime     = "ecs"
# Used by the runtimes lambda and both only.
worker_package = { bucket = "example-artifacts", key = "punctual/worker-arm64.zip", version = "1" }
