"""The teacher's work, done once and kept in the artifact store."""
