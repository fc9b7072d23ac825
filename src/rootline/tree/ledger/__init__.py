"""What each writer has had decided, which outcomes are unpublished, and the pages that hold the overflow."""
