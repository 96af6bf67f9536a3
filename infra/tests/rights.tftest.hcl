# What roles may do. Which actions the code calls is held against the same documents by a test of the code.

variables {
  environment    = "dev"
  region         = "eu-west-1"
  vpc_id         = "vpc-0123456789abcdef0"
  subnet_ids     = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
  image          = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/punctual:0.1.0"
  worker_runtime = "both"
  worker_package = { bucket = "example-artifacts", key = "punctual/worker.zip", version = "1" }
}

run "nothing_is_granted_by_a_star" {
  variables {
    api_certificate_arn = "arn:aws:acm:eu-west-1:123456789012:certificate/01234567-89ab-cdef-0123-456789abcdef"
    api_client_cidrs    = ["10.0.0.0/16"]
    receiver_queue_arns = ["arn:aws:sqs:eu-west-1:123456789012:bills"]
    kms_key_arn         = "arn:aws:kms:eu-west-1:123456789012:key/01234567-89ab-cdef-0123-456789abcdef"
  }

  assert {
    condition = alltrue(flatten([
      for document in [
        aws_iam_role_policy.scheduler[0].policy, aws_iam_role_policy.worker[0].policy, aws_iam_role_policy.function[0].policy,
        aws_iam_role_policy.api[0].policy, aws_iam_role_policy.operator[0].policy, aws_iam_role_policy.key["scheduler"].policy,
        ] : [
        for statement in jsondecode(document).Statement :
        [for word in flatten([statement.Action, statement.Resource]) : !strcontains(word, "*")]
      ]
    ]))
    error_message = "each action and each resource of a program's role is named"
  }
  assert {
    condition = alltrue(flatten([
      for policy in aws_iam_role_policy.execution : [
        for statement in jsondecode(policy.policy).Statement :
        flatten([statement.Resource]) != ["*"] || flatten([statement.Action]) == ["ecr:GetAuthorizationToken"]
      ]
    ]))
    error_message = "only the registry's token has no resource"
  }
  assert {
    condition     = length(aws_iam_role_policy.key) == 5
    error_message = "whoever uses tables and queues may use their key"
  }
}

run "a_worker_reaches_its_own_items_of_shared_tables_only" {
  assert {
    condition = alltrue(flatten([
      for document in [aws_iam_role_policy.worker[0].policy, aws_iam_role_policy.function[0].policy] : [
        for statement in jsondecode(document).Statement :
        contains(keys(statement), "Condition")
        if anytrue([for arn in flatten([statement.Resource]) : endswith(arn, "-leases") || endswith(arn, "-control")])
      ]
    ]))
    error_message = "API keys, shard counts and shard leases are none of a worker's"
  }
  assert {
    condition = alltrue(flatten([
      for statement in jsondecode(aws_iam_role_policy.function[0].policy).Statement : [
        for arn in flatten([statement.Resource]) : !endswith(arn, "-leases")
      ]
    ]))
    error_message = "a function keeps no shares"
  }
}

run "queues_that_are_not_named_are_not_sent_to" {
  assert {
    condition     = !strcontains(aws_iam_role_policy.worker[0].policy, "DeliverQueue")
    error_message = "without receiver_queue_arns the handler `queue` may send nowhere"
  }
}
