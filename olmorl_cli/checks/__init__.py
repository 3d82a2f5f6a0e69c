"""Findings: what the rewards, tokens and texts say of a run, each with the numbers that it rests on."""
