"""What a submission to a challenge holds: its files, the challenge's own checks, and the leaderboard's number."""
