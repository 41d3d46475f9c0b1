"""What installers say."""
