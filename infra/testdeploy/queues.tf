# What minimal has not, so that every function is deployed.

module "in" {
  source = "../../modules/queue"
  name   = "${var.name}-in"
}

module "out" {
  source = "../../modules/queue"
  name   = "${var.name}-out"
}

output "out_queue_url" {
  value = module.out.url
}
