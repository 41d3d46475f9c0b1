"""What is asked of servers, what comes from them, and where it is kept."""
