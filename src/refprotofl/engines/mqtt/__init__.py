"""MQTT as the transport of a deployment, over a broker that pushes. The only package that imports paho."""
