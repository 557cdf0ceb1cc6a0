"""Stage 2: teacher work, done once and kept in the artifact store."""
