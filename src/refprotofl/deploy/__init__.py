"""A deployment on real devices, whatever transport carries its messages: site, kits, admission, server and nodes."""
