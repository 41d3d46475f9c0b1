"""How an environment is changed so that it is the old one or the new one, whatever happens."""
