"""What operators have paused, as records of the frontiers' topic."""
