"""The only package that starts uv: it reads the user's settings, asks uv, and reads the result.

uv runs in a private folder, with a clean environment and without configuration files. The user's
settings are read once as data (`settings`), shown, and passed on explicitly (`question`).
"""
