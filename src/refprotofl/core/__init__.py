"""What every package needs: errors, random streams, state, units, devices."""
