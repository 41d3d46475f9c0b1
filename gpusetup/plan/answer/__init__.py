"""From a question to the answer: check, choose, solve, word."""
