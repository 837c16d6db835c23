"""What label-free metrics are worth: correlation with scores, and the regret of picking by them."""
