# Gateway endpoints: what runs in a VPC reaches bucket and table without a NAT gateway, which would cost more per GB than the log does. They are free.

terraform {
  required_version = ">= 1.7"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.100"
    }
  }
}

variable "vpc_id" {
  type = string
}

variable "route_table_ids" {
  description = "Route tables of the subnets in which producers and consumers run."
  type        = list(string)
}

variable "region" {
  type = string
}

resource "aws_vpc_endpoint" "gateway" {
  for_each = toset(["s3", "dynamodb"])

  vpc_id            = var.vpc_id
  service_name      = "com.amazonaws.${var.region}.${each.key}"
  vpc_endpoint_type = "Gateway"
  route_table_ids   = var.route_table_ids
}

output "ids" {
  value = { for service, e in aws_vpc_endpoint.gateway : service => e.id }
}
