"""Which method, at which setting, is best for one's data and link: a search for the front of accuracy against bytes."""
