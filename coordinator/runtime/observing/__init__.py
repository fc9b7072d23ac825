"""What people see of a coordinator: metrics, log lines, what happened lately."""
