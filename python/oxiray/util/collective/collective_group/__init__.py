"""Groups of processes that call each other's collectives, by backend."""
