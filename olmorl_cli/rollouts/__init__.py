"""Files to Arrow to arrays, and results back to files."""
