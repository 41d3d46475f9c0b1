"""Plans an installation, downloads and checks its wheels, switches the files, and undoes it."""
