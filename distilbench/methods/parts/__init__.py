"""Parts that several methods share: heads, losses, labelled examples, the two families of methods."""
