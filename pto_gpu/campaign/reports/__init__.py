"""What was found, as text, data, JUnit XML and a page."""
