output "name" {
  value = aws_s3_bucket.log.id
}

output "arn" {
  value = aws_s3_bucket.log.arn
}

output "prefix" {
  value = var.prefix
}
