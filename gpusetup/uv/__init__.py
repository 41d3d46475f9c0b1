"""The only room that starts uv: which of the person's settings apply, the request, and the result.

uv runs in a private folder with a clean environment and without configuration files. What a person
has set is read once as data (`settings`), shown, and handed over explicitly (`question`).
"""
