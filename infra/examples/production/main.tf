# A log as it is meant to be run: encrypted with keys of one's own, with functions that have their share of concurrency, a queue in front of a topic, one behind
# another, and somebody who is told. State belongs in a backend that several people share:
#
#   terraform { backend "s3" { bucket = "…" key = "varve.tfstate" region = "…" use_lockfile = true } }

terraform {
  required_version = ">= 1.7"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.100"
    }
  }
}

provider "aws" {
  region = var.region

  default_tags {
    tags = { varve = var.name }
  }
}

variable "region" {
  type = string
}

variable "name" {
  description = "What everything's name begins with."
  type        = string
  default     = "varve"
}

variable "bucket" {
  description = "Name of the bucket, which nobody in the world may have yet."
  type        = string
}

variable "told" {
  description = "E-mail addresses that alarms go to."
  type        = list(string)
}

variable "ingest_topic" {
  description = "Topic that the queue's messages go to."
  type        = string
  default     = "messages"
}

variable "forward_topics" {
  description = "Topics whose records go to the other queue. They must exist."
  type        = list(string)
  default     = []
}

variable "vpc" {
  description = "VPC whose producers and consumers are to reach bucket and table without a NAT gateway; null: none."
  type        = object({ id = string, route_table_ids = list(string) })
  default     = null
}

variable "warm_throughput" {
  description = "Units per second that the table is to take from the first day; null: 12,000 reads and 4,000 writes."
  type        = object({ read = number, write = number })
  default     = null
}

variable "packages" {
  description = "Where deploy.sh has put the functions."
  type        = string
  default     = "../../.packages"
}

resource "aws_kms_key" "log" {
  description             = "Bucket and table of the log ${var.name}"
  enable_key_rotation     = true
  deletion_window_in_days = 30

  lifecycle {
    prevent_destroy = true
  }
}

module "bucket" {
  source        = "../../modules/bucket"
  name          = var.bucket
  kms_key_arn   = aws_kms_key.log.arn
  undelete_days = 7
}

module "table" {
  source          = "../../modules/table"
  name            = var.name
  kms_key_arn     = aws_kms_key.log.arn
  warm_throughput = var.warm_throughput
}

module "in" {
  source = "../../modules/queue"
  name   = "${var.name}-in"
}

module "out" {
  source             = "../../modules/queue"
  name               = "${var.name}-out"
  visibility_timeout = 60
}

module "functions" {
  source       = "../../modules/functions"
  name         = var.name
  packages     = var.packages
  bucket       = module.bucket.name
  bucket_arn   = module.bucket.arn
  prefix       = module.bucket.prefix
  table        = module.table.name
  table_arn    = module.table.arn
  kms_key_arns = [aws_kms_key.log.arn]

  ingest = { queue_arn = module.in.arn, topic = var.ingest_topic, topic_attribute = "topic", key_attribute = "key" }
  forward = length(var.forward_topics) == 0 ? null : {
    queue_arn = module.out.arn, queue_url = module.out.url, group = "${var.name}-out", topics = var.forward_topics, dead_letter_topic = "${var.name}-out-dead"
  }

  # What one function may take of the account's 1,000, and what no other can take from it.
  concurrency = { produce = 100, fetch = 100, ingest = 20, forward = 2, compact = 4, retain = 1, sweep = 1, monitor = 1 }
  memory      = { produce = 1024, fetch = 1024, compact = 1769 }

  log_retention_days = 90
}

resource "aws_sns_topic" "alarms" {
  name = "${var.name}-alarms"
}

resource "aws_sns_topic_subscription" "alarms" {
  for_each = toset(var.told)

  topic_arn = aws_sns_topic.alarms.arn
  protocol  = "email"
  endpoint  = each.key
}

module "alarms" {
  source             = "../../modules/alarms"
  name               = var.name
  log                = "${module.bucket.name}/${module.bucket.prefix}"
  table              = module.table.name
  functions          = module.functions.names
  queues             = [module.in.name]
  dead_letter_queues = [module.in.dead_letter_queue_name, module.out.dead_letter_queue_name, module.functions.failures_queue_name]
  actions            = [aws_sns_topic.alarms.arn]
}

module "network" {
  source = "../../modules/network"
  count  = var.vpc == null ? 0 : 1

  vpc_id          = var.vpc.id
  route_table_ids = var.vpc.route_table_ids
  region          = var.region
}

output "log" {
  description = "URL of the log, for who has rights in bucket and table."
  value       = "aws://${module.bucket.name}/${module.bucket.prefix}?table=${module.table.name}&region=${var.region}"
}

output "fetch_url" {
  description = "URL of the log over HTTPS, for who may call the functions."
  value       = module.functions.fetch_url
}

output "produce_url" {
  value = module.functions.produce_url
}

output "bucket" {
  value = module.bucket.name
}

output "table" {
  value = module.table.name
}

output "functions" {
  value = module.functions.names
}

output "role_arns" {
  value = module.functions.role_arns
}

output "producer_policy" {
  description = "Attach it to who produces over HTTPS."
  value       = module.functions.producer_policy_json
}

output "reader_policy" {
  description = "Attach it to who reads over HTTPS."
  value       = module.functions.reader_policy_json
}

output "in_queue_url" {
  value = module.in.url
}

output "out_queue_url" {
  value = module.out.url
}
