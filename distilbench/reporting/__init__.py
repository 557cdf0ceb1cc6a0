"""Records in, a leaderboard out: tables and figures as plain data, then one HTML page that works offline."""
