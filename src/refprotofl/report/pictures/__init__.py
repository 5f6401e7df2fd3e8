"""Pictures that look alike, whatever they show."""
