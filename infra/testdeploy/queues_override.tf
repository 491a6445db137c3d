module "functions" {
  ingest  = { queue_arn = module.in.arn, topic = "flights" }
  forward = { queue_arn = module.out.arn, queue_url = module.out.url, group = "out", topics = ["flights"] }
}
