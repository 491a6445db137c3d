# All functions together, and both examples, with a provider that is made up.

mock_provider "aws" {
  override_during = plan

  mock_resource "aws_s3_bucket" {
    defaults = {
      id  = "records"
      arn = "arn:aws:s3:::records"
    }
  }

  mock_resource "aws_dynamodb_table" {
    defaults = {
      arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/varve"
    }
  }

  mock_resource "aws_iam_role" {
    defaults = {
      arn = "arn:aws:iam::123456789012:role/varve"
    }
  }

  mock_resource "aws_lambda_function" {
    defaults = {
      arn = "arn:aws:lambda:eu-central-1:123456789012:function:varve"
    }
  }

  mock_resource "aws_lambda_function_url" {
    defaults = {
      function_url = "https://function.lambda-url.eu-central-1.on.aws/"
    }
  }

  mock_resource "aws_sqs_queue" {
    defaults = {
      id  = "https://sqs.eu-central-1.amazonaws.com/123456789012/queue"
      arn = "arn:aws:sqs:eu-central-1:123456789012:queue"
    }
  }

  mock_resource "aws_kms_key" {
    defaults = {
      arn = "arn:aws:kms:eu-central-1:123456789012:key/k"
    }
  }

  mock_resource "aws_sns_topic" {
    defaults = {
      arn = "arn:aws:sns:eu-central-1:123456789012:alarms"
    }
  }
}

run "all_functions" {
  command = plan

  module {
    source = "../modules/functions"
  }

  variables {
    name       = "varve"
    bucket     = "records"
    bucket_arn = "arn:aws:s3:::records"
    prefix     = "log"
    table      = "varve"
    table_arn  = "arn:aws:dynamodb:eu-central-1:123456789012:table/varve"
    ingest     = { queue_arn = "arn:aws:sqs:eu-central-1:123456789012:in", topic = "messages" }
    forward = {
      queue_arn = "arn:aws:sqs:eu-central-1:123456789012:out", queue_url = "https://sqs.eu-central-1.amazonaws.com/123456789012/out", group = "out", topics = ["a", "b"]
    }
  }

  assert {
    condition     = { for name, s in aws_scheduler_schedule.run : name => s.schedule_expression } == { compact = "rate(10 minutes)", retain = "rate(1 hour)", sweep = "rate(1 day)", monitor = "rate(5 minutes)", forward = "rate(1 minute)" }
    error_message = "Other schedules."
  }

  assert {
    condition     = alltrue([for s in aws_scheduler_schedule.run : s.target[0].dead_letter_config[0].arn == aws_sqs_queue.failures.arn && s.target[0].retry_policy[0].maximum_retry_attempts == 0])
    error_message = "A run that cannot be begun is lost, or begun twice."
  }

  assert {
    condition     = keys(aws_lambda_function_event_invoke_config.run) == keys(aws_scheduler_schedule.run) && alltrue([for c in aws_lambda_function_event_invoke_config.run : c.maximum_retry_attempts == 0 && c.destination_config[0].on_failure[0].destination == aws_sqs_queue.failures.arn])
    error_message = "A run that fails is lost, or repeated."
  }

  assert {
    condition     = alltrue([for s in jsondecode(aws_iam_role_policy.schedules.policy).Statement : !strcontains(jsonencode(s), "\"*\"") && contains(["lambda:InvokeFunction", "sqs:SendMessage"], s.Action)])
    error_message = "Schedules may do more than run the functions."
  }

  assert {
    condition     = toset(aws_lambda_event_source_mapping.ingest[0].function_response_types) == toset(["ReportBatchItemFailures"])
    error_message = "A batch of which a message fails comes again whole."
  }

  assert {
    condition     = output.fetch_url != null && output.produce_url != null && length(output.role_arns) == 8
    error_message = "Outputs are missing."
  }

  assert {
    condition     = alltrue([for p in [output.producer_policy_json, output.reader_policy_json] : toset([for s in jsondecode(p).Statement : s.Action]) == toset(["lambda:InvokeFunctionUrl", "lambda:InvokeFunction"]) && alltrue([for s in jsondecode(p).Statement : s.Resource == "arn:aws:lambda:eu-central-1:123456789012:function:varve"])])
    error_message = "Callers may do less than they need, or more."
  }
}

run "no_queues" {
  command = plan

  module {
    source = "../modules/functions"
  }

  variables {
    name       = "varve"
    bucket     = "records"
    bucket_arn = "arn:aws:s3:::records"
    prefix     = "log"
    table      = "varve"
    table_arn  = "arn:aws:dynamodb:eu-central-1:123456789012:table/varve"
  }

  assert {
    condition     = length(aws_lambda_event_source_mapping.ingest) == 0 && keys(aws_scheduler_schedule.run) == ["compact", "monitor", "retain", "sweep"] && length(output.role_arns) == 6
    error_message = "Functions for queues that there are not."
  }
}

run "minimal" {
  command = plan

  module {
    source = "../examples/minimal"
  }

  variables {
    region = "eu-central-1"
    bucket = "records"
  }

  assert {
    condition     = output.log == "aws://records/log?table=varve&region=eu-central-1"
    error_message = "The log is ${output.log}."
  }
}

run "production" {
  command = plan

  module {
    source = "../examples/production"
  }

  variables {
    region         = "eu-central-1"
    bucket         = "records"
    told           = ["somebody@example.com"]
    forward_topics = ["messages"]
    vpc            = { id = "vpc-1", route_table_ids = ["rtb-1"] }
  }

  assert {
    condition     = length(output.role_arns) == 8
    error_message = "Functions are missing."
  }
}

run "alarms" {
  command = plan

  module {
    source = "../modules/alarms"
  }

  variables {
    name               = "varve"
    log                = "records/log"
    table              = "varve"
    functions          = { produce = "varve-produce", monitor = "varve-monitor", sweep = "varve-sweep" }
    queues             = ["varve-in"]
    dead_letter_queues = ["varve-in-dead", "varve-failures"]
    actions            = ["arn:aws:sns:eu-central-1:123456789012:alarms"]
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.log["retention-used"].metric_name == "RetentionUsed" && aws_cloudwatch_metric_alarm.log["retention-used"].threshold == 0.5 && aws_cloudwatch_metric_alarm.log["retention-used"].dimensions == tomap({ Log = "records/log" })
    error_message = "Nobody is told when half of the retention time has passed for a group."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.log["backlog-age"].threshold == 21600
    error_message = "Another backlog than six hours."
  }

  assert {
    condition     = { for k, a in aws_cloudwatch_metric_alarm.function : k => a.threshold } == { produce-errors = 5, monitor-errors = 0, sweep-errors = 0, produce-throttles = 0, monitor-throttles = 0, sweep-throttles = 0 }
    error_message = "Errors or throttles of a function pass unseen."
  }

  assert {
    condition     = keys(aws_cloudwatch_metric_alarm.dead) == ["varve-failures", "varve-in-dead"] && alltrue([for a in aws_cloudwatch_metric_alarm.dead : a.threshold == 0])
    error_message = "What failed for good lies there unseen."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.silence.treat_missing_data == "breaching"
    error_message = "A monitor that is dead raises no alarm."
  }

  assert {
    condition     = alltrue([for a in concat(values(aws_cloudwatch_metric_alarm.log), values(aws_cloudwatch_metric_alarm.function), values(aws_cloudwatch_metric_alarm.dead), values(aws_cloudwatch_metric_alarm.table), [aws_cloudwatch_metric_alarm.silence]) : a.alarm_actions == toset(["arn:aws:sns:eu-central-1:123456789012:alarms"])])
    error_message = "An alarm tells nobody."
  }
}

run "no_alarm_at_the_end" {
  command = plan

  module {
    source = "../modules/alarms"
  }

  variables {
    name           = "varve"
    log            = "records/log"
    table          = "varve"
    functions      = { monitor = "varve-monitor" }
    actions        = []
    retention_used = 1
  }

  expect_failures = [var.retention_used]
}

run "queue" {
  command = plan

  module {
    source = "../modules/queue"
  }

  variables {
    name = "varve-in"
  }

  assert {
    condition     = jsondecode(aws_sqs_queue.queue.redrive_policy).maxReceiveCount == 5 && aws_sqs_queue.queue.visibility_timeout_seconds == 360
    error_message = "Messages are dead too early, or come again while they are worked on."
  }

  assert {
    condition     = alltrue([for p in aws_sqs_queue_policy.tls : [for s in jsondecode(p.policy).Statement : [s.Effect, s.Condition]] == [["Deny", { Bool = { "aws:SecureTransport" = "false" } }]]])
    error_message = "The queue takes requests without TLS."
  }
}
