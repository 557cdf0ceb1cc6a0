"""The leaderboard as files for other programs: CSV, JSON, Parquet, Markdown, LaTeX."""
