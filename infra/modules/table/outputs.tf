output "name" {
  value = aws_dynamodb_table.log.name
}

output "arn" {
  value = aws_dynamodb_table.log.arn
}
