"""What a person's project asks for, and the answer that is right in its folder."""
