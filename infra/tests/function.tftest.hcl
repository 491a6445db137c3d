# One function with each policy, by the real provider, which renders and checks what it would send; nothing is sent, as each resource is overridden.

provider "aws" {
  region                      = "eu-central-1"
  access_key                  = "test"
  secret_key                  = "test"
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_region_validation      = true
  skip_requesting_account_id  = true
}

override_resource {
  target = aws_cloudwatch_log_group.function
}

override_resource {
  target = aws_iam_role.function
  values = {
    id  = "varve-function"
    arn = "arn:aws:iam::123456789012:role/varve-function"
  }
}

override_resource {
  target = aws_iam_role_policy.rights
}

override_resource {
  target = aws_iam_role_policy.keys
}

override_resource {
  target = aws_lambda_function.function
  values = {
    arn = "arn:aws:lambda:eu-central-1:123456789012:function:varve-function"
  }
}

override_resource {
  target = aws_lambda_function_url.function
  values = {
    function_url = "https://function.lambda-url.eu-central-1.on.aws/"
  }
}

variables {
  name               = "varve-function"
  policies           = ["produce"]
  place              = { partition = "aws", region = "eu-central-1", account = "123456789012" }
  memory             = 512
  timeout            = 30
  environment        = { VARVE_LOG = "aws://records/log?table=varve&region=eu-central-1" }
  concurrency        = -1
  log_retention_days = 30
  arns = {
    table    = "arn:aws:dynamodb:eu-central-1:123456789012:table/varve"
    bucket   = "arn:aws:s3:::records"
    objects  = "arn:aws:s3:::records/log"
    failures = "arn:aws:sqs:eu-central-1:123456789012:varve-failures"
    queue    = "arn:aws:sqs:eu-central-1:123456789012:varve-queue"
  }
}

run "rights" {
  module {
    source = "../modules/functions/function"
  }

  variables {
    policies = ["produce", "fetch", "ingest", "forward", "forward-dead-letters", "compact", "retain", "sweep", "monitor"]
    url      = true
  }

  assert {
    condition = alltrue(flatten([for p in aws_iam_role_policy.rights : [for s in jsondecode(p.policy).Statement : [
      for a in flatten([s.Action]) : !strcontains(a, "*")
    ]]]))
    error_message = "An action is a wildcard."
  }

  assert {
    condition = alltrue(flatten([for p in aws_iam_role_policy.rights : [for s in jsondecode(p.policy).Statement : [
      for r in flatten([s.Resource]) : contains([
        "arn:aws:dynamodb:eu-central-1:123456789012:table/varve",
        "arn:aws:s3:::records",
        "arn:aws:s3:::records/log/*",
        "arn:aws:s3:::records/log/varve.json",
        "arn:aws:s3:::records/log/.selftest/*",
        "arn:aws:s3:::records/log/*/intake/*",
        "arn:aws:s3:::records/log/*/archive/*",
        "arn:aws:sqs:eu-central-1:123456789012:varve-failures",
        "arn:aws:sqs:eu-central-1:123456789012:varve-queue",
        "arn:aws:logs:eu-central-1:123456789012:log-group:/aws/lambda/varve-function:*",
      ], r)
    ]]]))
    error_message = "A role may use what is not the log's."
  }

  assert {
    condition     = [for name, p in aws_iam_role_policy.rights : name if strcontains(p.policy, "s3:DeleteObject")] == ["sweep"]
    error_message = "Others than the sweep delete objects."
  }

  assert {
    condition     = [for name, p in aws_iam_role_policy.rights : name if strcontains(p.policy, "s3:PutLifecycleConfiguration")] == ["retain"]
    error_message = "Others than retain set the bucket's rules."
  }

  assert {
    condition     = alltrue([for name, p in aws_iam_role_policy.rights : alltrue([for s in jsondecode(p.policy).Statement : can(s.Condition["ForAllValues:StringLike"]["dynamodb:LeadingKeys"][0]) if anytrue([for a in flatten([s.Action]) : startswith(a, "dynamodb:")])])])
    error_message = "A right in the table is not restricted to items."
  }

  assert {
    condition     = aws_lambda_function_url.function[0].authorization_type == "AWS_IAM" && aws_lambda_function_url.function[0].invoke_mode == "RESPONSE_STREAM"
    error_message = "The URL is open, or does not answer as the code does."
  }

  assert {
    condition     = aws_lambda_function.function.architectures == tolist(["arm64"]) && aws_lambda_function.function.runtime == "provided.al2023"
    error_message = "Not the machine that the code is built for."
  }

  assert {
    condition     = aws_cloudwatch_log_group.function.name == "/aws/lambda/${aws_lambda_function.function.function_name}" && aws_cloudwatch_log_group.function.retention_in_days == 30
    error_message = "Logs are kept for ever."
  }

  assert {
    condition     = [for s in jsondecode(aws_iam_role.function.assume_role_policy).Statement : s.Principal] == [{ Service = "lambda.amazonaws.com" }]
    error_message = "Somebody else than Lambda takes the role."
  }

  assert {
    condition     = length(aws_iam_role_policy.keys) == 0
    error_message = "Rights in keys that there are not."
  }
}

run "keys" {
  module {
    source = "../modules/functions/function"
  }

  variables {
    kms_key_arns = ["arn:aws:kms:eu-central-1:123456789012:key/k"]
    concurrency  = 5
  }

  assert {
    condition     = alltrue([for s in jsondecode(aws_iam_role_policy.keys[0].policy).Statement : s.Resource == ["arn:aws:kms:eu-central-1:123456789012:key/k"] && can(s.Condition.StringEquals["kms:ViaService"]) && alltrue([for a in s.Action : !strcontains(a, "*")])])
    error_message = "Rights in other keys, or not by way of a service."
  }

  assert {
    condition     = aws_lambda_function.function.reserved_concurrent_executions == 5 && length(aws_lambda_function_url.function) == 0
    error_message = "No reserved concurrency, or a URL that nobody asked for."
  }
}
