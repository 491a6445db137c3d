# The functions of a log, each with a role of its own. What a role may do stands in policies/<function>.json, in full.

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
  # arn:PARTITION:dynamodb:REGION:ACCOUNT:table/NAME
  table_arn = split(":", var.table_arn)
  place     = { partition = local.table_arn[1], region = local.table_arn[3], account = local.table_arn[4] }

  log = "aws://${var.bucket}/${var.prefix}?table=${var.table}&region=${local.place.region}"
  arns = {
    table    = var.table_arn
    bucket   = var.bucket_arn
    objects  = "${var.bucket_arn}/${var.prefix}"
    failures = aws_sqs_queue.failures.arn
  }
}

# --- What is called: by clients over HTTPS, signed, and by a queue.

module "produce" {
  source = "./function"

  name               = "${var.name}-produce"
  package            = "${var.packages}/produce.zip"
  policies           = ["produce"]
  arns               = local.arns
  place              = local.place
  kms_key_arns       = var.kms_key_arns
  memory             = var.memory.produce
  timeout            = 60
  environment        = { VARVE_LOG = local.log }
  concurrency        = var.concurrency.produce
  log_retention_days = var.log_retention_days
  url                = true
}

module "fetch" {
  source = "./function"

  name               = "${var.name}-fetch"
  package            = "${var.packages}/fetch.zip"
  policies           = ["fetch"]
  arns               = local.arns
  place              = local.place
  kms_key_arns       = var.kms_key_arns
  memory             = var.memory.fetch
  timeout            = 60
  environment        = { VARVE_LOG = local.log, VARVE_PRODUCE_URL = module.produce.url }
  concurrency        = var.concurrency.fetch
  log_retention_days = var.log_retention_days
  url                = true
}

module "ingest" {
  source = "./function"
  count  = var.ingest == null ? 0 : 1

  name               = "${var.name}-ingest"
  package            = "${var.packages}/ingest.zip"
  policies           = ["ingest"]
  arns               = merge(local.arns, { queue = var.ingest.queue_arn })
  place              = local.place
  kms_key_arns       = var.kms_key_arns
  memory             = var.memory.ingest
  timeout            = 60
  concurrency        = var.concurrency.ingest
  log_retention_days = var.log_retention_days

  environment = {
    VARVE_LOG             = local.log
    VARVE_TOPIC           = var.ingest.topic
    VARVE_TOPIC_ATTRIBUTE = var.ingest.topic_attribute
    VARVE_KEY_ATTRIBUTE   = var.ingest.key_attribute
  }
}

resource "aws_lambda_event_source_mapping" "ingest" {
  count = var.ingest == null ? 0 : 1

  event_source_arn                   = var.ingest.queue_arn
  function_name                      = module.ingest[0].arn
  batch_size                         = 1000
  maximum_batching_window_in_seconds = 1
  function_response_types            = ["ReportBatchItemFailures"]

  scaling_config {
    maximum_concurrency = var.ingest.maximum_concurrency
  }
}

# --- What is done now and then. Each may run twice at a time, and begins where the one before has ended.

module "forward" {
  source = "./function"
  count  = var.forward == null ? 0 : 1

  name               = "${var.name}-forward"
  package            = "${var.packages}/forward.zip"
  policies           = var.forward.dead_letter_topic == "" ? ["forward"] : ["forward", "forward-dead-letters"]
  arns               = merge(local.arns, { queue = var.forward.queue_arn })
  place              = local.place
  kms_key_arns       = var.kms_key_arns
  memory             = var.memory.forward
  timeout            = 60
  concurrency        = var.concurrency.forward
  log_retention_days = var.log_retention_days

  environment = {
    VARVE_LOG               = local.log
    VARVE_GROUP             = var.forward.group
    VARVE_TOPICS            = join(",", var.forward.topics)
    VARVE_QUEUE_URL         = var.forward.queue_url
    VARVE_DEAD_LETTER_TOPIC = var.forward.dead_letter_topic
  }
}

module "compact" {
  source = "./function"

  name               = "${var.name}-compact"
  package            = "${var.packages}/compact.zip"
  policies           = ["compact"]
  arns               = local.arns
  place              = local.place
  kms_key_arns       = var.kms_key_arns
  memory             = var.memory.compact
  timeout            = 900
  disk               = 2048 # what of half a GiB, compacted in one piece, is not in memory, and key compaction's notes
  environment        = { VARVE_LOG = local.log }
  concurrency        = var.concurrency.compact
  log_retention_days = var.log_retention_days
}

module "retain" {
  source = "./function"

  name               = "${var.name}-retain"
  package            = "${var.packages}/retain.zip"
  policies           = ["retain"]
  arns               = local.arns
  place              = local.place
  kms_key_arns       = var.kms_key_arns
  memory             = var.memory.retain
  timeout            = 900
  environment        = { VARVE_LOG = local.log }
  concurrency        = var.concurrency.retain
  log_retention_days = var.log_retention_days
}

module "sweep" {
  source = "./function"

  name               = "${var.name}-sweep"
  package            = "${var.packages}/sweep.zip"
  policies           = ["sweep"]
  arns               = local.arns
  place              = local.place
  kms_key_arns       = var.kms_key_arns
  memory             = var.memory.sweep
  timeout            = 900
  environment        = { VARVE_LOG = local.log }
  concurrency        = var.concurrency.sweep
  log_retention_days = var.log_retention_days
}

module "monitor" {
  source = "./function"

  name               = "${var.name}-monitor"
  package            = "${var.packages}/monitor.zip"
  policies           = ["monitor"]
  arns               = local.arns
  place              = local.place
  kms_key_arns       = var.kms_key_arns
  memory             = var.memory.monitor
  timeout            = 60
  environment        = { VARVE_LOG = local.log }
  concurrency        = var.concurrency.monitor
  log_retention_days = var.log_retention_days
}
