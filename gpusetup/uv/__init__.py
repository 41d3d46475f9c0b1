"""The only package that starts uv: it asks uv in the current folder, with the user's own settings,
and reads the answer. What gpusetup itself has to know of the settings it reads once (`program`).
"""
