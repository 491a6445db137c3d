# A log with its functions: what it takes to produce and read over HTTPS, and to keep the log in order. Nothing runs, and nothing is paid for but storage and
# the schedules, while nobody uses it.

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

variable "packages" {
  description = "Where deploy.sh has put the functions."
  type        = string
  default     = "../../.packages"
}

module "bucket" {
  source = "../../modules/bucket"
  name   = var.bucket
}

module "table" {
  source = "../../modules/table"
  name   = var.name
}

module "functions" {
  source     = "../../modules/functions"
  name       = var.name
  packages   = var.packages
  bucket     = module.bucket.name
  bucket_arn = module.bucket.arn
  prefix     = module.bucket.prefix
  table      = module.table.name
  table_arn  = module.table.arn
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
