"""Which torch build fits: a machine and a request against the catalog's rows. Pure."""
