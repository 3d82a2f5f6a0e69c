"""Results to a person's eyes: the only place that knows rich."""
