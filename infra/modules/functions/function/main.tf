# One function: its code, its log group, its role, and if wanted a URL that asks for IAM.

terraform {
  required_version = ">= 1.7"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.100"
    }
  }
}

locals {
  logs = "arn:${var.place.partition}:logs:${var.place.region}:${var.place.account}:log-group:/aws/lambda/${var.name}:*"

  # What each service asks for in the caller's name.
  key_actions = {
    s3       = ["kms:Decrypt", "kms:GenerateDataKey"]
    sqs      = ["kms:Decrypt", "kms:GenerateDataKey"]
    dynamodb = ["kms:Encrypt", "kms:Decrypt", "kms:ReEncryptFrom", "kms:ReEncryptTo", "kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:DescribeKey"]
  }
}

resource "aws_cloudwatch_log_group" "function" {
  name              = "/aws/lambda/${var.name}"
  retention_in_days = var.log_retention_days
}

resource "aws_iam_role" "function" {
  name = var.name
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "lambda.amazonaws.com" }
      Action    = "sts:AssumeRole"
    }]
  })
}

resource "aws_iam_role_policy" "rights" {
  for_each = toset(var.policies)

  name   = each.key
  role   = aws_iam_role.function.id
  policy = templatefile("${path.module}/../policies/${each.key}.json", merge(var.arns, { logs = local.logs }))
}

resource "aws_iam_role_policy" "keys" {
  count = length(var.kms_key_arns) == 0 ? 0 : 1

  name = "keys"
  role = aws_iam_role.function.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [for service, actions in local.key_actions : {
      Effect    = "Allow"
      Action    = actions
      Resource  = var.kms_key_arns
      Condition = { StringEquals = { "kms:ViaService" = "${service}.${var.place.region}.amazonaws.com" } }
    }]
  })
}

resource "aws_lambda_function" "function" {
  function_name                  = var.name
  role                           = aws_iam_role.function.arn
  runtime                        = "provided.al2023"
  architectures                  = ["arm64"]
  handler                        = "bootstrap"
  filename                       = var.package
  source_code_hash               = filebase64sha256(var.package)
  memory_size                    = var.memory
  timeout                        = var.timeout
  reserved_concurrent_executions = var.concurrency

  ephemeral_storage {
    size = var.disk
  }

  environment {
    variables = var.environment
  }

  # Without its rights and its log group a first call would fail, or make a group that is kept for ever.
  depends_on = [aws_cloudwatch_log_group.function, aws_iam_role_policy.rights, aws_iam_role_policy.keys]
}

resource "aws_lambda_function_url" "function" {
  count = var.url ? 1 : 0

  function_name      = aws_lambda_function.function.function_name
  authorization_type = "AWS_IAM"
  invoke_mode        = "RESPONSE_STREAM" # as aws-lambda-go's lambdaurl answers, which serves an http.Handler
}
