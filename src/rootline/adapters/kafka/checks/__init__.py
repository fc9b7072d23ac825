"""What each topic must be like."""
