variable "name" {
  type = string
}

variable "visibility_timeout" {
  description = "Seconds until a message that was received and not deleted is received again: six times the time-out of the function that works on it."
  type        = number
  default     = 360
}

variable "attempts" {
  description = "How often a message is received before it goes to the dead ones."
  type        = number
  default     = 5

  validation {
    condition     = var.attempts >= 2
    error_message = "At least 2: a function that is throttled has received, too."
  }
}
