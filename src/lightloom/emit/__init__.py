"""What other systems read."""
