# The table of a log: the order of its records, and who has read how far.

terraform {
  required_version = ">= 1.7"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.100"
    }
  }
}

resource "aws_dynamodb_table" "log" {
  name                        = var.name
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "pk"
  range_key                   = "sk"
  deletion_protection_enabled = true

  attribute {
    name = "pk"
    type = "S"
  }

  attribute {
    name = "sk"
    type = "S"
  }

  # Only members of groups have it, and nothing depends on when they go: who lives is told by their counters.
  ttl {
    attribute_name = "ttl"
    enabled        = true
  }

  point_in_time_recovery {
    enabled                 = true
    recovery_period_in_days = var.recovery_days
  }

  # Without a key of one's own, DynamoDB encrypts with one that it owns.
  dynamic "server_side_encryption" {
    for_each = var.kms_key_arn == null ? [] : [var.kms_key_arn]
    content {
      enabled     = true
      kms_key_arn = server_side_encryption.value
    }
  }

  lifecycle {
    prevent_destroy = true
  }
}

# Version 5 of the provider has no attribute for it, so this takes the AWS CLI, where it is asked for. A table keeps what it was warmed to.
resource "terraform_data" "warm_throughput" {
  count = var.warm_throughput == null ? 0 : 1

  triggers_replace = [aws_dynamodb_table.log.arn, var.warm_throughput]

  provisioner "local-exec" {
    command = "aws dynamodb update-table --region \"$REGION\" --table-name \"$TABLE\" --warm-throughput \"ReadUnitsPerSecond=$READ,WriteUnitsPerSecond=$WRITE\""

    environment = {
      REGION = split(":", aws_dynamodb_table.log.arn)[3]
      TABLE  = aws_dynamodb_table.log.name
      READ   = var.warm_throughput.read
      WRITE  = var.warm_throughput.write
    }
  }
}
