"""The log on Kafka: the coordinator's side, the writer's side, and the operator's side."""
