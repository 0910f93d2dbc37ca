"""The package in which Ray has the client of Ray Serve's HTTP API, for compatibility."""
