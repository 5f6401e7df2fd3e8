"""The protocols that accuracies are named by, and how a client's model is scored."""
