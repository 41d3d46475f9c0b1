"""Pure parsers of what tools print, whoever hands the text over."""
