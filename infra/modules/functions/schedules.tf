locals {
  scheduled = merge(
    {
      compact = { function = module.compact, every = var.schedules.compact }
      retain  = { function = module.retain, every = var.schedules.retain }
      sweep   = { function = module.sweep, every = var.schedules.sweep }
      monitor = { function = module.monitor, every = var.schedules.monitor }
    },
    var.forward == null ? {} : { forward = { function = module.forward[0], every = var.schedules.forward } },
  )
}

# Runs that failed, and those that could not be begun. The next run does what was left, so these are there to be looked at, not to be done again.
resource "aws_sqs_queue" "failures" {
  name                      = "${var.name}-failures"
  message_retention_seconds = 14 * 24 * 3600
  sqs_managed_sse_enabled   = true
}

resource "aws_scheduler_schedule" "run" {
  for_each = local.scheduled

  name                = "${var.name}-${each.key}"
  schedule_expression = each.value.every

  flexible_time_window {
    mode = "OFF"
  }

  target {
    arn      = each.value.function.arn
    role_arn = aws_iam_role.schedules.arn

    retry_policy {
      maximum_retry_attempts       = 0
      maximum_event_age_in_seconds = 60
    }

    dead_letter_config {
      arn = aws_sqs_queue.failures.arn
    }
  }
}

resource "aws_lambda_function_event_invoke_config" "run" {
  for_each = local.scheduled

  function_name                = each.value.function.name
  maximum_retry_attempts       = 0
  maximum_event_age_in_seconds = 60

  destination_config {
    on_failure {
      destination = aws_sqs_queue.failures.arn
    }
  }
}

resource "aws_iam_role" "schedules" {
  name = "${var.name}-schedules"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "scheduler.amazonaws.com" }
      Action    = "sts:AssumeRole"
      Condition = { StringEquals = { "aws:SourceAccount" = local.place.account } }
    }]
  })
}

resource "aws_iam_role_policy" "schedules" {
  name = "rights"
  role = aws_iam_role.schedules.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      { Sid = "Run", Effect = "Allow", Action = "lambda:InvokeFunction", Resource = [for s in local.scheduled : s.function.arn] },
      { Sid = "NotBegun", Effect = "Allow", Action = "sqs:SendMessage", Resource = aws_sqs_queue.failures.arn },
    ]
  })
}
