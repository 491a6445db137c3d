variable "name" {
  description = "Name of the table."
  type        = string
}

variable "recovery_days" {
  description = "How many days the table can be put back, to any second."
  type        = number
  default     = 35

  validation {
    condition     = var.recovery_days >= 1 && var.recovery_days <= 35
    error_message = "1 to 35 days."
  }
}

variable "warm_throughput" {
  description = "Units per second that the table takes at once, without having grown to them; a fee, once, and it takes the AWS CLI. null: 12,000 reads and 4,000 writes, which are free."
  type        = object({ read = number, write = number })
  default     = null

  validation {
    condition     = var.warm_throughput == null ? true : var.warm_throughput.read >= 12000 && var.warm_throughput.write >= 4000
    error_message = "At least 12000 reads and 4000 writes, which each table has anyway."
  }
}

variable "kms_key_arn" {
  description = "KMS key that encrypts the table; null: one that DynamoDB owns."
  type        = string
  default     = null
}
