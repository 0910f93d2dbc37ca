"""The part of what is private to Ray Train that programs import."""
