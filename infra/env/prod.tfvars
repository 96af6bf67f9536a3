# An installation that somebody relies on. Put your own in place of the names of VPC, subnets, image, secret, certificate and topic.
environment             = "prod"
region                  = "eu-west-1"
prefix                  = "punctual"
vpc_id                  = "vpc-0123456789abcdef0"
subnet_ids              = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1", "subnet-0123456789abcdef2"]
image                   = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/punctual@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
kms_key_arn             = "arn:aws:kms:eu-west-1:123456789012:key/01234567-89ab-cdef-0123-456789abcdef"
scheduler_tasks         = 3
worker_runtime          = "ecs"
worker_tasks            = { min = 3, max = 10 }
api_certificate_arn     = "arn:aws:acm:eu-west-1:123456789012:certificate/01234567-89ab-cdef-0123-456789abcdef"
api_client_cidrs        = ["10.0.0.0/16"]
operator_principal_arns = ["arn:aws:iam::123456789012:role/on-call"]
alarm_actions           = ["arn:aws:sns:eu-west-1:123456789012:on-call"]
# Used by the runtimes lambda and both only.
worker_package = { bucket = "example-artifacts", key = "punctual/worker-arm64.zip", version = "1" }
# With worker_runtime = "ecs":
#   sms_url_secret_arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:punctual/sms-url-AbCdEf"
# A morning with 480,000 runs at nine (docs/scale.md says what a burst needs):
#   warm_throughput = { jobs = { reads_per_s = 12000, writes_per_s = 8000 }, due = { reads_per_s = 12000, writes_per_s = 16000 } }
