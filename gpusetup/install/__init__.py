"""From a resolution to an environment: the plan, the fetch, the switch, the receipt."""
