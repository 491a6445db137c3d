variable "name" {
  type = string
}

variable "package" {
  description = "Zip file with the program, called bootstrap."
  type        = string
}

variable "policies" {
  description = "What the role may do: names of files in ../policies, in which ARNs are placeholders."
  type        = list(string)
}

variable "arns" {
  description = "What the placeholders stand for, besides logs."
  type        = map(string)
}

variable "place" {
  type = object({ partition = string, region = string, account = string })
}

variable "kms_key_arns" {
  type    = list(string)
  default = []
}

variable "memory" {
  description = "MB. It is a share of CPU too: 1769 are one core."
  type        = number
}

variable "timeout" {
  description = "Seconds."
  type        = number
}

variable "disk" {
  description = "MB for temporary files."
  type        = number
  default     = 512
}

variable "environment" {
  type = map(string)
}

variable "concurrency" {
  description = "How many may run at a time, which are then kept for this function; -1: as many as the account has left."
  type        = number
}

variable "log_retention_days" {
  type = number
}

variable "url" {
  type    = bool
  default = false
}
