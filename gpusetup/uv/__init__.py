"""The only room that starts uv: which settings of the person count, the question, and the answer.

uv runs in a private folder with a clean environment and without configuration files. What a person
has set is read once as data (`settings`), shown, and handed over explicitly (`question`).
"""
