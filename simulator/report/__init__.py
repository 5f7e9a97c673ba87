"""What came of loads, as one HTML page that stands alone, and in words."""
