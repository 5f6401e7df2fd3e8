"""What several methods share: weights and their compressed changes, class prototypes and learning from them."""
