"""The tiles of a campaign: operands, valid regions and where they lie, on the host and on a GPU."""
