"""What it takes to run on real devices: certificates, a kit for each node, the server's process, a check of a node."""
