"""The driver: there, loaded, of one version, new enough, and answering."""
