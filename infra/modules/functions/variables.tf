variable "name" {
  description = "What the names of functions, roles, queues and schedules begin with."
  type        = string
}

variable "packages" {
  description = "Directory with <function>.zip for each function, as deploy.sh makes them."
  type        = string
}

variable "bucket" {
  type = string
}

variable "bucket_arn" {
  type = string
}

variable "prefix" {
  description = "What the log's keys in the bucket begin with."
  type        = string
}

variable "table" {
  type = string
}

variable "table_arn" {
  type = string
}

variable "kms_key_arns" {
  description = "Keys that bucket, table and queues are encrypted with, where these are one's own."
  type        = list(string)
  default     = []
}

variable "ingest" {
  description = "A queue whose messages become records of a topic; null: none."
  type = object({
    queue_arn           = string
    topic               = optional(string, "") # where messages go that name none
    topic_attribute     = optional(string, "") # message attribute that names another topic
    key_attribute       = optional(string, "") # message attribute that is the record's key
    maximum_concurrency = optional(number, 10)
  })
  default = null
}

variable "forward" {
  description = "A queue that gets the records of topics as a group reads them; null: none."
  type = object({
    queue_arn         = string
    queue_url         = string
    group             = string
    topics            = list(string)
    dead_letter_topic = optional(string, "") # for what cannot be sent
  })
  default = null
}

variable "schedules" {
  description = "How often what is scheduled runs."
  type = object({
    compact = optional(string, "rate(10 minutes)")
    retain  = optional(string, "rate(1 hour)")
    sweep   = optional(string, "rate(1 day)")
    monitor = optional(string, "rate(5 minutes)")
    forward = optional(string, "rate(1 minute)")
  })
  default = {}
}

variable "memory" {
  description = "MB of each function."
  type = object({
    produce = optional(number, 512)
    fetch   = optional(number, 512)
    ingest  = optional(number, 512)
    forward = optional(number, 256)
    compact = optional(number, 1024)
    retain  = optional(number, 256)
    sweep   = optional(number, 512)
    monitor = optional(number, 256)
  })
  default = {}
}

variable "concurrency" {
  description = "Reserved concurrency of each function; -1: none reserved. An account whose limit is low, as that of a new one is, cannot reserve any."
  type = object({
    produce = optional(number, -1)
    fetch   = optional(number, -1)
    ingest  = optional(number, -1)
    forward = optional(number, -1)
    compact = optional(number, -1)
    retain  = optional(number, -1)
    sweep   = optional(number, -1)
    monitor = optional(number, -1)
  })
  default = {}
}

variable "log_retention_days" {
  type    = number
  default = 30
}
