"""The report: one self-contained HTML page, its pictures and charts."""
