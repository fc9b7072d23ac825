"""The writers' ledger, unpublished outcomes and retired locations, in the header and in pages."""
