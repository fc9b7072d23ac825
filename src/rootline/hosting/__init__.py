"""The services of an embedded lake, hosted in the process that has it open."""
