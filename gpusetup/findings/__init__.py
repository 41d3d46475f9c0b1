"""The findings: each module holds pure rules, which take a machine and return what is wrong with
it."""
