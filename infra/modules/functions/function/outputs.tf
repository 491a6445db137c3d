output "name" {
  value = aws_lambda_function.function.function_name
}

output "arn" {
  value = aws_lambda_function.function.arn
}

output "url" {
  value = one(aws_lambda_function_url.function[*].function_url)
}

output "role_arn" {
  value = aws_iam_role.function.arn
}
