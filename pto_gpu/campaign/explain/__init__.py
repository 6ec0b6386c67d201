"""What is behind a mismatch: the cause, the rule set that agrees, and a smaller tile that still fails."""
