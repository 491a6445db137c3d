# The bucket as it would be made, with a provider that is made up. It is never applied: what is protected from being destroyed could not be cleaned up.

mock_provider "aws" {
  override_during = plan

  mock_resource "aws_s3_bucket" {
    defaults = {
      id  = "records"
      arn = "arn:aws:s3:::records"
    }
  }
}

variables {
  name = "records"
}

run "as_it_comes" {
  command = plan

  module {
    source = "../modules/bucket"
  }

  assert {
    condition     = { for r in aws_s3_bucket_lifecycle_configuration.log.rule : r.id => r.filter[0].prefix } == { uploads = "log/", deleted = "log/" }
    error_message = "Other rules, or not for the log's prefix, which ends with a separator."
  }

  assert {
    condition     = alltrue([for r in aws_s3_bucket_lifecycle_configuration.log.rule : r.status == "Enabled"])
    error_message = "A rule is not enabled."
  }

  assert {
    condition     = [for r in aws_s3_bucket_lifecycle_configuration.log.rule : r.abort_incomplete_multipart_upload[0].days_after_initiation if r.id == "uploads"] == [1]
    error_message = "What uploads left behind goes after a day."
  }

  assert {
    condition     = alltrue([for r in aws_s3_bucket_lifecycle_configuration.log.rule : length(r.expiration) == 0 && length(r.noncurrent_version_expiration) == 0 && length(r.transition) == 0 if r.id == "uploads"])
    error_message = "The rule for uploads does more than end them."
  }

  assert {
    condition     = [for r in aws_s3_bucket_lifecycle_configuration.log.rule : r.noncurrent_version_expiration[0].noncurrent_days if r.id == "deleted"] == [3]
    error_message = "What was deleted can be had back for three days."
  }

  assert {
    condition     = [for r in aws_s3_bucket_lifecycle_configuration.log.rule : r.expiration[0].expired_object_delete_marker if r.id == "deleted"] == [true]
    error_message = "Marks of deletions pile up."
  }

  assert {
    condition     = aws_s3_bucket_versioning.log.versioning_configuration[0].status == "Enabled"
    error_message = "Versions are kept."
  }

  assert {
    condition = jsondecode(aws_s3_bucket_policy.log.policy) == {
      Version = "2012-10-17"
      Statement = [{
        Sid       = "TLSOnly"
        Effect    = "Deny"
        Principal = "*"
        Action    = "s3:*"
        Resource  = ["arn:aws:s3:::records", "arn:aws:s3:::records/*"]
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      }]
    }
    error_message = "The policy is another: ${aws_s3_bucket_policy.log.policy}"
  }

  assert {
    condition     = alltrue([aws_s3_bucket_public_access_block.log.block_public_acls, aws_s3_bucket_public_access_block.log.block_public_policy, aws_s3_bucket_public_access_block.log.ignore_public_acls, aws_s3_bucket_public_access_block.log.restrict_public_buckets])
    error_message = "Something may be public."
  }

  assert {
    condition     = one(aws_s3_bucket_server_side_encryption_configuration.log.rule).bucket_key_enabled && one(one(aws_s3_bucket_server_side_encryption_configuration.log.rule).apply_server_side_encryption_by_default).sse_algorithm == "AES256"
    error_message = "Not encrypted with S3's keys."
  }
}

run "nothing_can_be_had_back" {
  command = plan

  module {
    source = "../modules/bucket"
  }

  variables {
    undelete_days = 0
  }

  assert {
    condition     = aws_s3_bucket_versioning.log.versioning_configuration[0].status == "Suspended"
    error_message = "Versions are kept although nobody wants them."
  }
}

run "a_key_of_ones_own" {
  command = plan

  module {
    source = "../modules/bucket"
  }

  variables {
    kms_key_arn = "arn:aws:kms:eu-central-1:123456789012:key/k"
  }

  assert {
    condition     = one(aws_s3_bucket_server_side_encryption_configuration.log.rule).bucket_key_enabled && one(one(aws_s3_bucket_server_side_encryption_configuration.log.rule).apply_server_side_encryption_by_default).kms_master_key_id == "arn:aws:kms:eu-central-1:123456789012:key/k"
    error_message = "Not encrypted with the key, by a bucket key."
  }
}

run "longer_than_the_table_can_be_put_back" {
  command = plan

  module {
    source = "../modules/bucket"
  }

  variables {
    undelete_days = 36
  }

  expect_failures = [var.undelete_days]
}

run "a_prefix_with_a_slash_at_its_end" {
  command = plan

  module {
    source = "../modules/bucket"
  }

  variables {
    prefix = "log/"
  }

  expect_failures = [var.prefix]
}
