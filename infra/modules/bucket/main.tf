# The bucket of a log: its segments, which are put once and never changed.

terraform {
  required_version = ">= 1.7"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.100"
    }
  }
}

resource "aws_s3_bucket" "log" {
  bucket = var.name

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_s3_bucket_ownership_controls" "log" {
  bucket = aws_s3_bucket.log.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_public_access_block" "log" {
  bucket                  = aws_s3_bucket.log.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

# Nothing is ever overwritten, so the only versions that are not current are those of deleted objects. They are what makes a sweep, a rule or a hand that has
# deleted too much, and a table that is put back further than the 25 hours that varve keeps replaced objects for, something that can be undone.
resource "aws_s3_bucket_versioning" "log" {
  bucket = aws_s3_bucket.log.id

  versioning_configuration {
    status = var.undelete_days > 0 ? "Enabled" : "Suspended"
  }
}

# A bucket key: one request to KMS for many objects instead of one for each. Without a key of one's own it has no effect.
resource "aws_s3_bucket_server_side_encryption_configuration" "log" {
  bucket = aws_s3_bucket.log.id

  rule {
    bucket_key_enabled = true

    apply_server_side_encryption_by_default {
      sse_algorithm     = var.kms_key_arn == null ? "AES256" : "aws:kms"
      kms_master_key_id = var.kms_key_arn
    }
  }
}

resource "aws_s3_bucket_policy" "log" {
  bucket = aws_s3_bucket.log.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "TLSOnly"
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:*"
      Resource  = [aws_s3_bucket.log.arn, "${aws_s3_bucket.log.arn}/*"]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }]
  })

  depends_on = [aws_s3_bucket_public_access_block.log]
}

# S3 takes a bucket's rules only as a whole, and two want to set them: this module, and `retain`, which adds a rule for each retention class that the topics
# come to have (varve-<class>-<log id>; the log's id is not known before there is a log). So the rules are retain's to change: it writes back those of others as
# they were. Terraform sets its own when the bucket is made, then looks at them no more. Only when what they are made from changes are they set again; retain's
# next run puts those of the classes back, within the hour, and until then nothing is deleted that would not have been.
resource "terraform_data" "rules" {
  input = { prefix = var.prefix, undelete_days = var.undelete_days }
}

resource "aws_s3_bucket_lifecycle_configuration" "log" {
  bucket = aws_s3_bucket.log.id

  # What writers in parts left behind; none of them takes a day.
  rule {
    id     = "uploads"
    status = "Enabled"

    filter {
      prefix = "${var.prefix}/"
    }

    abort_incomplete_multipart_upload {
      days_after_initiation = 1
    }
  }

  # What was deleted, for good; and then the mark that says that something was.
  rule {
    id     = "deleted"
    status = "Enabled"

    filter {
      prefix = "${var.prefix}/"
    }

    noncurrent_version_expiration {
      noncurrent_days = max(var.undelete_days, 1)
    }

    expiration {
      expired_object_delete_marker = true
    }
  }

  lifecycle {
    ignore_changes       = [rule]
    replace_triggered_by = [terraform_data.rules]
  }

  depends_on = [aws_s3_bucket_versioning.log]
}
