variable "name" {
  description = "What the alarms' names begin with."
  type        = string
}

variable "log" {
  description = "The log as its metrics name it: bucket/prefix."
  type        = string
}

variable "table" {
  description = "Name of the table."
  type        = string
}

variable "functions" {
  description = "Function -> its full name; monitor must be one of them."
  type        = map(string)

  validation {
    condition     = contains(keys(var.functions), "monitor")
    error_message = "Without the monitor function there is nothing to raise an alarm by."
  }
}

variable "queues" {
  description = "Names of queues from which messages are ingested."
  type        = list(string)
  default     = []
}

variable "dead_letter_queues" {
  description = "Names of queues that are to be empty."
  type        = list(string)
  default     = []
}

variable "actions" {
  description = "ARNs of SNS topics, or other actions, that are told."
  type        = list(string)
}

variable "retention_used" {
  description = "Share of the retention time that a group may be behind."
  type        = number
  default     = 0.5

  validation {
    condition     = var.retention_used > 0 && var.retention_used < 1
    error_message = "Above 0 and below 1: at 1 records are lost."
  }
}

variable "backlog_hours" {
  description = "How old what is not compacted may be. An hour is usual, since small backlogs wait for so long."
  type        = number
  default     = 6
}

variable "sweep_hours" {
  description = "How long the sweep may not have run. Its floor is an hour behind it, and it runs once a day."
  type        = number
  default     = 72
}

variable "errors" {
  description = "Failed calls of produce, fetch or ingest in five minutes; of the others it is none."
  type        = number
  default     = 5
}
