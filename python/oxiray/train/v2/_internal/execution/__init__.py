"""Names of Ray Train's insides that callbacks of other libraries import."""
