"""Verdict and rows to tables, figures, HTML, Markdown, JSON and JUnit."""
