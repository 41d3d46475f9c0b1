"""The plain values that travel between the steps, their forms as files, and how they are typed."""
