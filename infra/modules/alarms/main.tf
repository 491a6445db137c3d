# What somebody has to be told of. docs/operations.md says what to do about each.

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
  # Of the whole log, as the monitor function writes them: the largest of what concerns partitions.
  log_alarms = {
    retention-used = { metric = "RetentionUsed", above = var.retention_used, why = "A group has let that share of the retention time pass. At 1 it loses records." }
    lost           = { metric = "Lost", above = 0, why = "Records are gone by retention that a group had still to read." }
    backlog-age    = { metric = "CompactionBacklogAge", above = var.backlog_hours * 3600, why = "Compaction does not keep up, or does not run." }
    head-full      = { metric = "SpillBacklog", above = 48, why = "A lane's head has nearly the 64 commits that it takes: producers will be refused." }
    floor-age      = { metric = "FloorAge", above = var.sweep_hours * 3600, why = "No sweep has been through for that long: what nobody needs is not deleted." }
  }

  # Of each function, as Lambda counts them.
  function_alarms = merge(
    { for f, name in var.functions : "${f}-errors" => { metric = "Errors", function = name, above = f == "produce" || f == "fetch" || f == "ingest" ? var.errors : 0 } },
    { for f, name in var.functions : "${f}-throttles" => { metric = "Throttles", function = name, above = 0 } },
  )
}

resource "aws_cloudwatch_metric_alarm" "log" {
  for_each = local.log_alarms

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.why
  namespace           = "varve"
  metric_name         = each.value.metric
  dimensions          = { Log = var.log }
  statistic           = "Maximum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = each.value.above
  period              = 300
  evaluation_periods  = 3
  datapoints_to_alarm = 2
  treat_missing_data  = "ignore" # between two runs there is none; that there are no runs has an alarm of its own
  alarm_actions       = var.actions
  ok_actions          = var.actions
}

# An outcome that could not be found out: the only case in which a producer does not know whether its records are in the log.
resource "aws_cloudwatch_metric_alarm" "unsettled" {
  for_each = { for f, name in var.functions : f => name if contains(["produce", "ingest"], f) }

  alarm_name          = "${var.name}-${each.key}-unsettled"
  alarm_description   = "Commits whose outcome could not be found out: the table was out of reach for minutes."
  namespace           = "varve"
  metric_name         = "UnsettledOutcomes"
  dimensions          = { Log = var.log, Function = each.key }
  statistic           = "Sum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  period              = 300
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.actions
}

resource "aws_cloudwatch_metric_alarm" "function" {
  for_each = local.function_alarms

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = "The function's log says why."
  namespace           = "AWS/Lambda"
  metric_name         = each.value.metric
  dimensions          = { FunctionName = each.value.function }
  statistic           = "Sum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = each.value.above
  period              = 300
  evaluation_periods  = 3
  datapoints_to_alarm = 2
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.actions
  ok_actions          = var.actions
}

# Without the monitor none of the log's alarms can be raised.
resource "aws_cloudwatch_metric_alarm" "silence" {
  alarm_name          = "${var.name}-monitor-silent"
  alarm_description   = "The monitor function has not run for half an hour: nothing else here can be relied upon."
  namespace           = "AWS/Lambda"
  metric_name         = "Invocations"
  dimensions          = { FunctionName = var.functions.monitor }
  statistic           = "Sum"
  comparison_operator = "LessThanThreshold"
  threshold           = 1
  period              = 900
  evaluation_periods  = 2
  treat_missing_data  = "breaching"
  alarm_actions       = var.actions
  ok_actions          = var.actions
}

resource "aws_cloudwatch_metric_alarm" "dead" {
  for_each = toset(var.dead_letter_queues)

  alarm_name          = "${each.key}-not-empty"
  alarm_description   = "Messages, or runs of functions, that failed for good wait here to be looked at."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateNumberOfMessagesVisible"
  dimensions          = { QueueName = each.key }
  statistic           = "Maximum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  period              = 300
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.actions
}

resource "aws_cloudwatch_metric_alarm" "waiting" {
  for_each = toset(var.queues)

  alarm_name          = "${each.key}-waiting"
  alarm_description   = "Messages wait longer than that: ingest does not keep up, or fails."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateAgeOfOldestMessage"
  dimensions          = { QueueName = each.key }
  statistic           = "Maximum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = 900
  period              = 300
  evaluation_periods  = 2
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.actions
  ok_actions          = var.actions
}

resource "aws_cloudwatch_metric_alarm" "table" {
  for_each = { writes = "WriteThrottleEvents", reads = "ReadThrottleEvents" }

  alarm_name          = "${var.name}-table-${each.key}-throttled"
  alarm_description   = "The table refuses requests. A lane takes 1,000 write units a second: more lanes, or a longer linger."
  namespace           = "AWS/DynamoDB"
  metric_name         = each.value
  dimensions          = { TableName = var.table }
  statistic           = "Sum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = 100
  period              = 300
  evaluation_periods  = 3
  datapoints_to_alarm = 2
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.actions
  ok_actions          = var.actions
}
