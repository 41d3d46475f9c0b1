"""The user's settings of uv, pip and certificates, as far as they say where packages come from."""
