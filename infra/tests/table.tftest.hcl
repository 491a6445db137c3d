mock_provider "aws" {
  override_during = plan

  mock_resource "aws_dynamodb_table" {
    defaults = {
      arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/varve"
    }
  }
}

variables {
  name = "varve"
}

run "as_it_comes" {
  command = plan

  module {
    source = "../modules/table"
  }

  assert {
    condition     = aws_dynamodb_table.log.billing_mode == "PAY_PER_REQUEST" && aws_dynamodb_table.log.hash_key == "pk" && aws_dynamodb_table.log.range_key == "sk" && toset([for a in aws_dynamodb_table.log.attribute : "${a.name} ${a.type}"]) == toset(["pk S", "sk S"])
    error_message = "Not the table that varve uses."
  }

  assert {
    condition     = aws_dynamodb_table.log.deletion_protection_enabled && one(aws_dynamodb_table.log.point_in_time_recovery).enabled && one(aws_dynamodb_table.log.point_in_time_recovery).recovery_period_in_days == 35
    error_message = "The data is not protected."
  }

  assert {
    condition     = one(aws_dynamodb_table.log.ttl).enabled && one(aws_dynamodb_table.log.ttl).attribute_name == "ttl"
    error_message = "Members of groups that have gone are not deleted, or something else is."
  }

  assert {
    condition     = length(terraform_data.warm_throughput) == 0
    error_message = "Warmed although nobody asked for it."
  }
}

run "warm_and_with_a_key" {
  command = plan

  module {
    source = "../modules/table"
  }

  variables {
    kms_key_arn     = "arn:aws:kms:eu-central-1:123456789012:key/k"
    warm_throughput = { read = 20000, write = 10000 }
  }

  assert {
    condition     = one(aws_dynamodb_table.log.server_side_encryption).enabled && one(aws_dynamodb_table.log.server_side_encryption).kms_key_arn == "arn:aws:kms:eu-central-1:123456789012:key/k"
    error_message = "Not encrypted with the key."
  }

  assert {
    condition     = length(terraform_data.warm_throughput) == 1
    error_message = "Not warmed."
  }
}

run "less_than_a_table_has" {
  command = plan

  module {
    source = "../modules/table"
  }

  variables {
    warm_throughput = { read = 12000, write = 100 }
  }

  expect_failures = [var.warm_throughput]
}
