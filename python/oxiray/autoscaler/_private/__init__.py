"""The package in which Ray has what its commands print with, for compatibility."""
