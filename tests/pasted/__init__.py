"""Commands of answers as a shell reads them, and machines whose texts want to act."""
