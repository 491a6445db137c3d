variable "name" {
  description = "Name of the bucket. It belongs to this log alone."
  type        = string
}

variable "prefix" {
  description = "What the log's keys begin with, without a slash at the end."
  type        = string
  default     = "log"

  validation {
    condition     = can(regex("^[a-zA-Z0-9_.=-]+(/[a-zA-Z0-9_.=-]+)*$", var.prefix)) && length(var.prefix) <= 512
    error_message = "The prefix is one or more names of a-z A-Z 0-9 _ . = - with slashes between them."
  }
}

variable "undelete_days" {
  description = "How long what was deleted can be had back, and is paid for: the bucket keeps versions for that many days. 0: it keeps none."
  type        = number
  default     = 3

  validation {
    condition     = var.undelete_days >= 0 && var.undelete_days <= 35 && floor(var.undelete_days) == var.undelete_days
    error_message = "Whole days, 0 to 35: the table cannot be put back further."
  }
}

variable "kms_key_arn" {
  description = "KMS key that encrypts the objects; null: S3's own keys."
  type        = string
  default     = null
}
