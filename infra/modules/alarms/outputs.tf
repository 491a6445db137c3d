output "names" {
  value = sort(concat(
    [for a in aws_cloudwatch_metric_alarm.log : a.alarm_name],
    [for a in aws_cloudwatch_metric_alarm.unsettled : a.alarm_name],
    [for a in aws_cloudwatch_metric_alarm.function : a.alarm_name],
    [for a in aws_cloudwatch_metric_alarm.dead : a.alarm_name],
    [for a in aws_cloudwatch_metric_alarm.waiting : a.alarm_name],
    [for a in aws_cloudwatch_metric_alarm.table : a.alarm_name],
    [aws_cloudwatch_metric_alarm.silence.alarm_name],
  ))
}
