locals {
  functions = merge(
    { produce = module.produce, fetch = module.fetch, compact = module.compact, retain = module.retain, sweep = module.sweep, monitor = module.monitor },
    var.ingest == null ? {} : { ingest = module.ingest[0] },
    var.forward == null ? {} : { forward = module.forward[0] },
  )
}

output "produce_url" {
  value = module.produce.url
}

output "fetch_url" {
  value = module.fetch.url
}

output "names" {
  description = "Function -> its full name."
  value       = { for f, m in local.functions : f => m.name }
}

output "role_arns" {
  description = "Function -> its role."
  value       = { for f, m in local.functions : f => m.role_arn }
}

output "failures_queue_name" {
  value = aws_sqs_queue.failures.name
}

# Nobody may call the URLs but who has one of these. A caller needs both actions.
output "producer_policy_json" {
  description = "Policy for those who produce over HTTPS."
  value       = jsonencode(local.callers.produce)
}

output "reader_policy_json" {
  description = "Policy for those who read over HTTPS."
  value       = jsonencode(local.callers.fetch)
}

locals {
  callers = { for f, m in { produce = module.produce, fetch = module.fetch } : f => {
    Version = "2012-10-17"
    Statement = [
      { Sid = "Call", Effect = "Allow", Action = "lambda:InvokeFunctionUrl", Resource = m.arn, Condition = { StringEquals = { "lambda:FunctionUrlAuthType" = "AWS_IAM" } } },
      { Sid = "CallByURLOnly", Effect = "Allow", Action = "lambda:InvokeFunction", Resource = m.arn, Condition = { Bool = { "lambda:InvokedViaFunctionUrl" = "true" } } },
    ]
  } }
}
