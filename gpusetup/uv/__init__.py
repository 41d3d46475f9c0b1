"""The only package that starts uv: it reads the person's settings, asks uv, and reads the result.

uv runs in a private folder with a clean environment and without configuration files. What a person
has set is read once as data (`settings`), shown, and handed over explicitly (`question`).
"""
