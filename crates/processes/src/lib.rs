//! Watching, killing and reaping whole process trees.
